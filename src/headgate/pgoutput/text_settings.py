"""The settings of a connection to a publisher on which the text of values and the meaning of queries depend.

`walreceiver.link` and `pyspark_headgate.walsender` set them. Those of the publisher's role or database may differ.
"""

TEXT_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "timezone": "UTC",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "standard_conforming_strings": "on",
    "quote_all_identifiers": "off",
    "transform_null_equals": "off",
}

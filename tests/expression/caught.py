"""A Spark expression that returns the value of its operand or the text of its error, so that one query shows every row of many expressions.

`Caught(spark).column(c)` is a struct of `value` and `error`, one of which is NULL. Errors in the arguments of a Python function cannot be
caught, because Spark computes the arguments before. `safe` returns whether there are none. Janino, which Spark contains, compiles the
class, and the session gets it as a jar. It has no generated code, so the session must run with ``spark.sql.codegen.factoryMode``
NO_CODEGEN, or the query must be over rows that the driver holds.
"""

from __future__ import annotations

import re
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import Column, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn

NAME = "headgate.agreement.Caught"
_CATALYST = "org.apache.spark.sql.catalyst"
_TYPES = "org.apache.spark.sql.types"
SOURCE = f"""
package headgate.agreement;

public class Caught extends {_CATALYST}.expressions.TryEval {{
  public Caught({_CATALYST}.expressions.Expression child) {{ super(child); }}
  public {_TYPES}.DataType dataType() {{
    return new {_TYPES}.StructType().add("value", this.child().dataType(), true).add("error", {_TYPES}.DataTypes.StringType, true);
  }}
  public boolean nullable() {{ return true; }}
  public boolean foldable() {{ return false; }}
  public boolean nullIntolerant() {{ return false; }}
  public Object eval({_CATALYST}.InternalRow row) {{
    Object value = null;
    Object error = null;
    try {{ value = this.child().eval(row); }}
    catch (Exception raised) {{ error = org.apache.spark.unsafe.types.UTF8String.fromString(String.valueOf(raised.getMessage())); }}
    return new {_CATALYST}.expressions.GenericInternalRow(new Object[] {{value, error}});
  }}
  public {_CATALYST}.expressions.TryEval withNewChildInternal({_CATALYST}.expressions.Expression given) {{ return new Caught(given); }}
}}
"""


class Caught:
    """The class in a session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        jvm = spark._jvm
        assert jvm is not None
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(SOURCE)
        self._folder = tempfile.TemporaryDirectory(prefix="caught-")  # tasks fetch the jar from there
        jar = Path(self._folder.name) / "caught.jar"
        with zipfile.ZipFile(jar, "w") as archive:
            for name, code in dict(compiler.getBytecodes()).items():
                archive.writestr(name.replace(".", "/") + ".class", bytes(code))
        spark.sql(f"ADD JAR '{jar}'")
        self._made = spark._jsparkSession.sharedState().jarClassLoader().loadClass(NAME).getConstructors()[0]
        self._utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._object = jvm.Object

    def safe(self, column: Column) -> bool:
        """Return whether the column calls no Python function (which Spark prints with its number)."""
        return re.search(r"\)#\d+", self._utils.expression(column._jc).toString()) is None  # type: ignore[attr-defined]

    def column(self, column: Column) -> Column:
        """Return the struct of the column's value and error."""
        arguments = self.spark.sparkContext._gateway.new_array(self._object, 1)
        arguments[0] = self._utils.expression(column._jc)  # type: ignore[attr-defined]
        return ClassicColumn(self._utils.column(self._made.newInstance(arguments)))

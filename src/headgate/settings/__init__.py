"""The settings of a node and of its sessions (manual, chapter 20).

`node.Settings` reads headgate.conf, headgate.auto.conf and the command line. `session.SessionSettings` is the view of one session, with
SET, SET LOCAL and RESET. `definition.SettingDefinition` is the type, the bounds and the context of a setting; `table.find` returns it by
name.
"""

package io.unitycatalog.server.utils;

/** What the build of Unity Catalog generates. */
public class VersionUtils {
  public static String VERSION = "0.5.1";
}

// Iceberg's REST catalog test fixture over its JDBC catalog on SQLite, on the loopback interface.
// The fixture's own main binds every interface.
// Run: java -cp JARS RestCatalog PORT DATABASE_FILE WAREHOUSE [KEY=VALUE...]
// The values are properties of the store, which is S3 where the warehouse is there.
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

public class RestCatalog {
  public static void main(String[] args) throws Exception {
    Map<String, String> properties = new HashMap<>();
    properties.put("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    properties.put("jdbc.schema-version", "V1");
    properties.put("uri", "jdbc:sqlite:" + args[1]);
    properties.put("warehouse", args[2]);
    properties.put("io-impl", "org.apache.iceberg.hadoop.HadoopFileIO");
    properties.put("clients", "1"); // SQLite: one writer
    if (args[2].startsWith("s3:")) {
      properties.put("io-impl", "org.apache.iceberg.aws.s3.S3FileIO");
    }
    for (int i = 3; i < args.length; i++) {
      int at = args[i].indexOf('=');
      properties.put(args[i].substring(0, at), args[i].substring(at + 1));
    }
    Configuration hadoop = new Configuration();
    hadoop.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem"); // no .crc side files
    Catalog catalog = CatalogUtil.buildIcebergCatalog("backend", properties, hadoop);
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.setContextPath("/");
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}

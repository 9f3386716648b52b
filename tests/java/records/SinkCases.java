package org.apache.iceberg.connect.data;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.iceberg.DataFile;
import org.apache.iceberg.HasTableOperations;
import org.apache.iceberg.PartitionField;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.Table;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.connect.IcebergSinkConfig;
import org.apache.iceberg.connect.events.TableReference;
import org.apache.iceberg.data.GenericRecord;
import org.apache.iceberg.data.Record;
import org.apache.iceberg.data.parquet.GenericParquetReaders;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.io.CloseableIterable;
import org.apache.iceberg.io.TaskWriter;
import org.apache.iceberg.parquet.Parquet;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;
import org.apache.kafka.connect.sink.SinkRecord;

/** What the Iceberg sink does: conversion, schemas, routing, new tables. */
final class SinkCases {
  private static final Map<JsonNode, Table> TABLES = new HashMap<>();

  private SinkCases() {}

  static void answer(JsonNode test, ObjectNode expected) throws Exception {
    switch (test.get("kind").textValue()) {
      case "record-conversion" -> conversion(test, expected, false);
      case "evolution" -> conversion(test, expected, true);
      case "infer" -> {
        Object value = Forms.plain(test.get("input"));
        RecordOracle.stage = "type";
        expected.set("type", Rows.type(SchemaUtils.inferIcebergType(value, config(test))));
      }
      case "from-connect" -> {
        org.apache.kafka.connect.data.Schema schema = Forms.schema(test.get("schema"));
        RecordOracle.stage = "type";
        expected.set("type", Rows.type(SchemaUtils.toIcebergType(schema, config(test))));
      }
      case "partition-spec" -> partitionSpec(test, expected);
      case "route" -> route(test, expected);
      case "auto-create" -> autoCreate(test, expected);
      default -> throw new IllegalArgumentException("kind " + test.get("kind"));
    }
  }

  private static IcebergSinkConfig config(JsonNode test) {
    return config(test, Map.of());
  }

  private static IcebergSinkConfig config(JsonNode test, Map<String, String> more) {
    Map<String, String> given =
        test.has("config") ? RecordOracle.config(test.get("config")) : Map.of();
    Map<String, String> config = new HashMap<>(Map.of(
        "name", "golden",
        "topics", "orders",
        "iceberg.catalog.type", "rest",
        "iceberg.catalog.uri", "http://localhost"));
    if (!given.containsKey("iceberg.tables")
        && !given.containsKey("iceberg.tables.dynamic-enabled")) {
      config.put("iceberg.tables", "db.t");
    }
    config.putAll(more);
    config.putAll(given);
    return new IcebergSinkConfig(config);
  }

  private static InMemoryCatalog catalog() {
    InMemoryCatalog catalog = new InMemoryCatalog();
    catalog.initialize("iceberg", Map.of());
    return catalog;
  }

  private static Table table(InMemoryCatalog catalog, String name, JsonNode source) {
    Schema schema = SchemaParser.fromJson(source.get("schema"));
    TableIdentifier identifier = TableIdentifier.parse(name);
    namespace(catalog, identifier.namespace());
    Map<String, String> properties = RecordOracle.config(source.get("properties"));
    return catalog.createTable(identifier, schema, PartitionSpec.unpartitioned(), properties);
  }

  private static void namespace(InMemoryCatalog catalog, Namespace namespace) {
    for (int level = 1; level <= namespace.length(); level++) {
      String[] levels = java.util.Arrays.copyOf(namespace.levels(), level);
      if (!catalog.namespaceExists(Namespace.of(levels))) {
        catalog.createNamespace(Namespace.of(levels));
      }
    }
  }

  private static void conversion(JsonNode test, ObjectNode expected, boolean evolve)
      throws Exception {
    JsonNode input = test.get("input");
    JsonNode given = input.get("value");
    boolean schemas = input.get("schemas").booleanValue() && !given.isNull();
    Object value = schemas ? Forms.withSchema(given).value() : Forms.plain(given);
    try (InMemoryCatalog catalog = catalog()) {
      Table table =
          evolve
              ? table(catalog, "db.t", test.get("table"))
              : TABLES.computeIfAbsent(test.get("table"), t -> table(catalog(), "db.t", t));
      RecordOracle.stage = "configure";
      IcebergSinkConfig config = config(test);
      RecordOracle.stage = "convert";
      RecordConverter converter = new RecordConverter(table, config);
      if (evolve) {
        SchemaUpdate.Consumer updates = new SchemaUpdate.Consumer();
        converter.convert(value, updates);
        expected.set("updates", updates(updates));
        if (!updates.empty()) {
          RecordOracle.stage = "update";
          SchemaUtils.applySchemaUpdates(table, updates);
          table.refresh();
          expected.set("schema_after", schemaJson(table.schema()));
          RecordOracle.stage = "convert";
          converter = new RecordConverter(table, config);
        }
      }
      Record row = converter.convert(value);
      RecordOracle.stage = "write";
      DataFile file = written(table, config, row);
      RecordOracle.stage = "read";
      try (CloseableIterable<Record> rows =
          Parquet.read(table.io().newInputFile(file.location()))
              .project(table.schema())
              .createReaderFunc(s -> GenericParquetReaders.buildReader(table.schema(), s))
              .build()) {
        expected.set("row", Rows.row(table.schema().asStruct(), rows.iterator().next()));
      }
    }
  }

  private static JsonNode schemaJson(Schema schema) throws Exception {
    JsonNode node = new ObjectMapper().readTree(SchemaParser.toJson(schema));
    ((ObjectNode) node).remove("schema-id");
    return node;
  }

  private static DataFile written(Table table, IcebergSinkConfig config, Record row)
      throws Exception {
    TableReference reference =
        TableReference.of("iceberg", TableIdentifier.of("db", "t"), new java.util.UUID(0, 1));
    try (TaskWriter<Record> writer = RecordUtils.createTableWriter(table, reference, config)) {
      writer.write(row);
      return writer.complete().dataFiles()[0];
    }
  }

  private static ObjectNode updates(SchemaUpdate.Consumer updates) {
    ObjectNode node = Forms.JSON.objectNode();
    ArrayNode adds = node.putArray("add");
    updates.addColumns().stream()
        .sorted(Comparator.comparing((SchemaUpdate.AddColumn a) ->
                a.parentName() == null ? "" : a.parentName())
            .thenComparing(SchemaUpdate.AddColumn::name))
        .forEach(add -> {
          ObjectNode one = adds.addObject().put("parent", add.parentName()).put("name", add.name());
          one.set("type", Rows.type(add.type()));
        });
    ArrayNode retypes = node.putArray("retype");
    updates.updateTypes().stream()
        .sorted(Comparator.comparing(SchemaUpdate.UpdateType::name))
        .forEach(u -> retypes.addObject().put("name", u.name()).set("type", Rows.type(u.type())));
    ArrayNode optionals = node.putArray("optional");
    updates.makeOptionals().stream()
        .map(SchemaUpdate.MakeOptional::name).sorted().forEach(optionals::add);
    return node;
  }

  private static void partitionSpec(JsonNode test, ObjectNode expected) {
    Schema schema = SchemaParser.fromJson(test.get("schema"));
    RecordOracle.stage = "configure";
    String text = test.get("text").textValue();
    List<String> terms =
        config(test, Map.of("iceberg.tables.default-partition-by", text))
            .tableConfig("db.t").partitionBy();
    ArrayNode split = expected.putArray("split");
    terms.forEach(split::add);
    RecordOracle.stage = "spec";
    expected.set("fields", partition(schema, SchemaUtils.createPartitionSpec(schema, terms)));
  }

  private static ArrayNode partition(Schema schema, PartitionSpec spec) {
    ArrayNode fields = Forms.JSON.arrayNode();
    for (PartitionField field : spec.fields()) {
      fields.addObject()
          .put("source", schema.findColumnName(field.sourceId()))
          .put("transform", field.transform().toString())
          .put("name", field.name());
    }
    return fields;
  }

  private static void route(JsonNode test, ObjectNode expected) throws Exception {
    List<SinkRecord> records = new ArrayList<>();
    test.get("records").forEach(record -> records.add(Forms.record(record)));
    try (InMemoryCatalog catalog = catalog()) {
      for (JsonNode source : test.get("tables")) {
        table(catalog, source.get("name").textValue(), source);
      }
      RecordOracle.stage = "configure";
      SinkWriter writer = new SinkWriter(catalog, config(test));
      RecordOracle.stage = "save";
      for (int i = 0; i < records.size(); i++) {
        expected.set("at", Forms.JSON.objectNode().put("record", i));
        writer.save(List.of(records.get(i)));
      }
      SinkWriterResult result = writer.completeWrite();
      Map<String, Long> rows = new TreeMap<>();
      for (IcebergWriterResult one : result.writerResults()) {
        long count = one.dataFiles().stream().mapToLong(DataFile::recordCount).sum();
        rows.merge(one.tableReference().identifier().toString(), count, Long::sum);
      }
      ObjectNode writes = expected.putObject("writes");
      rows.forEach(writes::put);
      ObjectNode offsets = expected.putObject("offsets");
      result.sourceOffsets().forEach((tp, offset) -> offsets.put(tp.toString(), offset.offset()));
    }
  }

  private static void autoCreate(JsonNode test, ObjectNode expected) throws Exception {
    SinkRecord record = Forms.record(test.get("record"));
    try (InMemoryCatalog catalog = catalog()) {
      RecordOracle.stage = "configure";
      SinkWriter writer = new SinkWriter(catalog, config(test));
      RecordOracle.stage = "save";
      writer.save(List.of(record));
      writer.completeWrite();
      ObjectNode tables = expected.putObject("tables");
      for (Namespace namespace : all(catalog, Namespace.empty())) {
        for (TableIdentifier name : catalog.listTables(namespace)) {
          Table table = catalog.loadTable(name);
          ObjectNode one = tables.putObject(name.toString());
          one.set("schema", Rows.type(table.schema().asStruct()));
          one.set("partition", partition(table.schema(), table.spec()));
          ObjectNode properties = one.putObject("properties");
          table.properties().forEach(properties::put);
          one.put("format-version",
              ((HasTableOperations) table).operations().current().formatVersion());
        }
      }
    }
  }

  private static List<Namespace> all(InMemoryCatalog catalog, Namespace parent) {
    List<Namespace> found = new ArrayList<>(List.of(parent));
    for (Namespace child : catalog.listNamespaces(parent)) {
      if (child.length() > parent.length()) {
        found.addAll(all(catalog, child));
      }
    }
    return found;
  }
}

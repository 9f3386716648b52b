package org.apache.iceberg.connect.data;

import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.SinkConnectorConfig;
import org.apache.kafka.connect.runtime.TransformationStage;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;
import org.apache.kafka.connect.util.ConnectorTaskId;
import io.apicurio.registry.utils.converter.avro.AvroData;
import io.apicurio.registry.utils.converter.avro.AvroDataConfig;

/**
 * Says what the Java libraries do with records: a case a line in, its "expected" a line out.
 *
 * <p>Cases have the form of tests/golden/records (README.md there), with a "kind": the folder's
 * name, or the file's below schema and routing. It lies in the sink's package, whose classes are
 * not public, so it is compiled into a folder next to the jars.
 */
public final class RecordOracle {
  private static final Map<String, String> BASE =
      Map.of(
          "name", "golden",
          "connector.class", "org.apache.iceberg.connect.IcebergSinkConnector",
          "topics", "orders");
  private static Plugins plugins;
  private static ConnectMetrics metrics;

  /** The stage that a case is in, for what it throws. */
  static String stage = "";

  private RecordOracle() {}

  public static void main(String[] args) throws Exception {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
    System.setOut(System.err); // what libraries print is no answer
    ObjectMapper json =
        JsonMapper.builder().enable(JsonWriteFeature.ESCAPE_NON_ASCII).build();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode expected = answer(json.readTree(line));
      out.println(json.writeValueAsString(expected));
    }
    out.flush();
  }

  private static ObjectNode answer(JsonNode test) {
    stage = "input";
    ObjectNode expected = Forms.JSON.objectNode();
    try {
      switch (test.get("kind").textValue()) {
        case "transforms" -> {
          if (test.has("transform")) {
            transform(test, expected);
          } else {
            chain(test, expected);
          }
        }
        case "predicates" -> predicate(test, expected);
        case "messages" -> messages(test, expected);
        case "converters" -> {
          if (test.get("converter").textValue().equals("AvroData")) {
            avro(test, expected);
          } else {
            converter(test, expected);
          }
        }
        default -> SinkCases.answer(test, expected);
      }
    } catch (Throwable error) {
      expected.set("error", error(error, expected.remove("at")));
    }
    expected.remove("at");
    return expected;
  }

  private static ObjectNode error(Throwable error, JsonNode at) {
    ObjectNode node = Forms.JSON.objectNode();
    node.put("stage", stage);
    node.put("class", error.getClass().getName());
    node.put("message", message(error));
    List<ObjectNode> causes = new ArrayList<>();
    for (Throwable c = error.getCause(); c != null && causes.size() < 9; c = c.getCause()) {
      causes.add(
          Forms.JSON.objectNode()
              .put("class", c.getClass().getName())
              .put("message", message(c)));
    }
    if (!causes.isEmpty()) {
      node.putArray("causes").addAll(causes);
    }
    if (at instanceof ObjectNode) {
      node.setAll((ObjectNode) at);
    }
    return node;
  }

  /** Without the addresses of objects, which are others in each run. */
  private static String message(Throwable error) {
    String said = error.getMessage();
    return said == null ? null : said.replaceAll("@[0-9a-f]{4,8}\\b", "@HASH");
  }

  static Map<String, String> config(JsonNode node) {
    Map<String, String> config = new LinkedHashMap<>();
    node.fields().forEachRemaining(
        e -> config.put(e.getKey(), e.getValue().isNull() ? null : e.getValue().asText()));
    return config;
  }

  private static void transform(JsonNode test, ObjectNode expected) throws Exception {
    SinkRecord record = Forms.record(test.get("input"));
    stage = "configure";
    try (Transformation<SinkRecord> transform = made(test.get("transform").textValue())) {
      transform.configure(config(test.get("config")));
      stage = "apply";
      SinkRecord after = transform.apply(record);
      expected.set("record", after == null ? Forms.JSON.nullNode() : Forms.of(after));
    }
  }

  /** A transform over many messages: a new one for each, as Debezium's keep schemas of others. */
  private static void messages(JsonNode test, ObjectNode expected) throws Exception {
    Converter converter = made("org.apache.kafka.connect.json.JsonConverter");
    HeaderConverter headers = made("org.apache.kafka.connect.storage.SimpleHeaderConverter");
    converter.configure(config(test.get("converter")), false);
    var records = expected.putArray("records");
    for (JsonNode message : test.get("messages")) {
      SinkRecord record = read(message, converter, headers);
      ObjectNode one = records.addObject();
      stage = "configure";
      try (Transformation<SourceRecord> transform = made(test.get("transform").textValue())) {
        transform.configure(config(test.get("config")));
        stage = "apply";
        SourceRecord after = transform.apply(sourceOf(record));
        one.set("record", after == null ? Forms.JSON.nullNode() : Forms.of(sinkOf(after)));
      } catch (RuntimeException error) {
        one.set("error", error(error, null));
      }
    }
  }

  /** As in a source: a sink's record must have a partition, which the outbox router leaves open. */
  private static SourceRecord sourceOf(SinkRecord r) {
    return new SourceRecord(
        Map.of(), Map.of(), r.topic(), r.kafkaPartition(), r.keySchema(), r.key(),
        r.valueSchema(), r.value(), r.timestamp(), r.headers());
  }

  private static SinkRecord sinkOf(SourceRecord r) {
    return new SinkRecord(
        r.topic(), 0, r.keySchema(), r.key(), r.valueSchema(), r.value(), 0, r.timestamp(),
        TimestampType.CREATE_TIME, r.headers());
  }

  private static SinkRecord read(JsonNode message, Converter converter, HeaderConverter headers) {
    String topic = message.get("topic").textValue();
    SchemaAndValue key = converter.toConnectData(topic, bytes(message.get("key")));
    SchemaAndValue value = converter.toConnectData(topic, bytes(message.get("value")));
    ConnectHeaders converted = new ConnectHeaders();
    message.get("headers").fields().forEachRemaining(
        h -> converted.add(h.getKey(), headers.toConnectHeader(topic, h.getKey(), bytes(h.getValue()))));
    return new SinkRecord(
        topic, 0, key.schema(), key.value(), value.schema(), value.value(), 0, 0L,
        TimestampType.CREATE_TIME, converted);
  }

  private static byte[] bytes(JsonNode text) {
    return text.isNull() ? null : text.textValue().getBytes(StandardCharsets.UTF_8);
  }

  private static void predicate(JsonNode test, ObjectNode expected) throws Exception {
    SinkRecord record = Forms.record(test.get("input"));
    stage = "configure";
    try (Predicate<SinkRecord> predicate = made(test.get("predicate").textValue())) {
      Map<String, String> config = config(test.get("config"));
      predicate.config().parse(config);
      predicate.configure(config);
      stage = "test";
      expected.put("result", predicate.test(record));
    }
  }

  @SuppressWarnings("unchecked")
  private static <T> T made(String name) throws Exception {
    return (T) Class.forName(name).getDeclaredConstructor().newInstance();
  }

  private static void chain(JsonNode test, ObjectNode expected) {
    SinkRecord record = Forms.record(test.get("input"));
    stage = "configure";
    if (plugins == null) {
      plugins = new Plugins(Map.of("plugin.discovery", "only_scan"));
      Map<String, String> worker =
          Map.of(
              "bootstrap.servers", "localhost:9",
              "key.converter", "org.apache.kafka.connect.storage.StringConverter",
              "value.converter", "org.apache.kafka.connect.json.JsonConverter",
              "offset.storage.file.filename", "unused");
      metrics = new ConnectMetrics("oracle", new StandaloneConfig(worker), Time.SYSTEM, "oracle");
    }
    Map<String, String> config = new HashMap<>(BASE);
    config.putAll(config(test.get("config")));
    SinkConnectorConfig sink = new SinkConnectorConfig(plugins, config);
    List<TransformationStage<SinkRecord>> stages =
        sink.transformationStages(plugins, new ConnectorTaskId("golden", 0), metrics);
    stage = "apply";
    try {
      for (int i = 0; i < stages.size() && record != null; i++) {
        expected.set("at", Forms.JSON.objectNode().put("transform", i));
        record = stages.get(i).apply(record);
      }
    } finally {
      stages.forEach(TransformationStage::close);
    }
    expected.set("record", record == null ? Forms.JSON.nullNode() : Forms.of(record));
  }

  private static void converter(JsonNode test, ObjectNode expected) throws Exception {
    JsonNode given = test.get("input").get("bytes");
    byte[] bytes = given.isNull() ? null : Base64.getDecoder().decode(given.textValue());
    Map<String, String> config = config(test.get("config"));
    String role = test.get("role").textValue();
    stage = "configure";
    SchemaAndValue found;
    if (role.equals("header")) {
      HeaderConverter converter = made(test.get("converter").textValue());
      config.put("converter.type", role);
      converter.configure(config);
      stage = "convert";
      found = converter.toConnectHeader("t", "h", bytes);
    } else {
      Converter converter = made(test.get("converter").textValue());
      converter.configure(config, role.equals("key"));
      stage = "convert";
      found = converter.toConnectData("t", bytes);
    }
    put(found, expected);
  }

  private static void avro(JsonNode test, ObjectNode expected) throws Exception {
    JsonNode input = test.get("input");
    org.apache.avro.Schema schema =
        new org.apache.avro.Schema.Parser().parse(input.get("avro_schema").toString());
    byte[] bytes = Base64.getDecoder().decode(input.get("bytes").textValue());
    Object datum =
        new GenericDatumReader<>(schema).read(null, DecoderFactory.get().binaryDecoder(bytes, null));
    stage = "configure";
    AvroData data = new AvroData(new AvroDataConfig(config(test.get("config"))));
    stage = "convert";
    put(data.toConnectData(schema, datum), expected);
  }

  private static void put(SchemaAndValue found, ObjectNode expected) {
    if (found == null) {
      found = SchemaAndValue.NULL;
    }
    expected.set("schema", Forms.of(found.schema()));
    expected.set("value", Forms.of(found.schema(), found.value()));
  }
}

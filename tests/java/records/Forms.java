package org.apache.iceberg.connect.data;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.Date;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.common.record.TimestampType;

/** The forms of Connect values in the recordings, in and out; tests/golden/records/README.md. */
final class Forms {
  static final JsonNodeFactory JSON = JsonNodeFactory.withExactBigDecimals(true);
  private static final int DEPTH_MAX = 100;
  private static final long DAY_MS = 86_400_000;
  private static final JsonConverter SCHEMAS = new JsonConverter();

  static {
    SCHEMAS.configure(Map.of("converter.type", "value", "schemas.enable", "true"));
  }

  private static final Map<String, Function<JsonNode, Object>> TYPED =
      Map.ofEntries(
          Map.entry("$int8", n -> (byte) n.intValue()),
          Map.entry("$int16", n -> (short) n.intValue()),
          Map.entry("$int32", JsonNode::intValue),
          Map.entry("$int64", JsonNode::longValue),
          Map.entry("$bigint", n -> new BigInteger(n.asText())),
          Map.entry("$float32", n -> Float.valueOf(n.asText())),
          Map.entry("$float64", n -> Double.valueOf(n.asText())),
          Map.entry("$decimal", n -> new BigDecimal(n.asText())),
          Map.entry("$bytes", n -> Base64.getDecoder().decode(n.asText())),
          Map.entry("$bytebuffer", n -> ByteBuffer.wrap(Base64.getDecoder().decode(n.asText()))),
          Map.entry("$date", n -> new Date(LocalDate.parse(n.asText()).toEpochDay() * DAY_MS)),
          Map.entry("$time", n -> new Date(LocalTime.parse(n.asText()).toNanoOfDay() / 1_000_000)),
          Map.entry("$timestamp", n -> new Date(n.longValue())),
          Map.entry("$localdate", n -> LocalDate.parse(n.asText())),
          Map.entry("$localtime", n -> LocalTime.parse(n.asText())),
          Map.entry("$localdatetime", n -> LocalDateTime.parse(n.asText())),
          Map.entry("$offsetdatetime", n -> OffsetDateTime.parse(n.asText())),
          Map.entry("$instant", n -> Instant.parse(n.asText())),
          Map.entry("$uuid", n -> UUID.fromString(n.asText())),
          Map.entry("$map", Forms::mapOfPairs),
          Map.entry("$struct", n -> withSchema(n).value));

  record Side(Schema schema, Object value) {}

  private Forms() {}

  static Schema schema(JsonNode node) {
    if (node == null || node.isNull()) {
      return null;
    }
    boolean list = node.path("type").asText().equals("array") && node.path("items").isNull();
    boolean map = node.path("type").asText().equals("map") && node.path("keys").isNull();
    if (list || map) {
      return Values.parseString(list ? "[]" : "{}").schema(); // builders of these are not public
    }
    return SCHEMAS.asConnectSchema(node);
  }

  /** A value without schema. */
  static Object plain(JsonNode node) {
    if (node == null || node.isNull()) {
      return null;
    } else if (node.isTextual()) {
      return node.textValue();
    } else if (node.isBoolean()) {
      return node.booleanValue();
    } else if (node.isIntegralNumber()) {
      return node.longValue();
    } else if (node.isNumber()) {
      return node.doubleValue();
    } else if (node.isArray()) {
      List<Object> items = new ArrayList<>();
      node.forEach(item -> items.add(plain(item)));
      return items;
    }
    if (node.size() == 1 && TYPED.containsKey(node.fieldNames().next())) {
      String kind = node.fieldNames().next();
      return TYPED.get(kind).apply(node.get(kind));
    }
    Map<String, Object> fields = new LinkedHashMap<>();
    node.fields().forEachRemaining(e -> fields.put(e.getKey(), plain(e.getValue())));
    return fields;
  }

  private static Object mapOfPairs(JsonNode pairs) {
    Map<Object, Object> map = new LinkedHashMap<>();
    pairs.forEach(pair -> map.put(plain(pair.get(0)), plain(pair.get(1))));
    return map;
  }

  static Side withSchema(JsonNode envelope) {
    Schema schema = schema(envelope.get("schema"));
    return new Side(schema, payload(schema, envelope.get("payload")));
  }

  /** The payload of an envelope. */
  static Object payload(Schema schema, JsonNode node) {
    if (schema == null || node == null || node.isNull()) {
      return plain(node);
    }
    if (node.isNumber()) {
      switch (schema.type()) {
        case INT8: return (byte) node.intValue();
        case INT16: return (short) node.intValue();
        case INT32: return node.intValue();
        case INT64: return node.longValue();
        case FLOAT32: return node.floatValue();
        case FLOAT64: return node.doubleValue();
        default: return plain(node);
      }
    }
    if (schema.type() == Schema.Type.STRUCT) {
      Struct struct = new Struct(schema);
      for (Field field : schema.fields()) {
        Object value = payload(field.schema(), node.get(field.name()));
        if (value != null) {
          struct.put(field, value);
        }
      }
      return struct;
    }
    if (schema.type() == Schema.Type.ARRAY) {
      List<Object> items = new ArrayList<>();
      node.forEach(item -> items.add(payload(schema.valueSchema(), item)));
      return items;
    }
    if (schema.type() == Schema.Type.MAP) {
      Map<Object, Object> map = new LinkedHashMap<>();
      if (node.isObject()) {
        node.fields().forEachRemaining(
            e -> map.put(e.getKey(), payload(schema.valueSchema(), e.getValue())));
      } else {
        node.forEach(pair -> map.put(
            payload(schema.keySchema(), pair.get(0)), payload(schema.valueSchema(), pair.get(1))));
      }
      return map;
    }
    return plain(node);
  }

  static SinkRecord record(JsonNode node) {
    boolean schemas = node.get("schemas").booleanValue();
    Side key = side(node.get("key"), schemas);
    Side value = side(node.get("value"), schemas);
    ConnectHeaders headers = new ConnectHeaders();
    node.path("headers").forEach(h -> {
      Schema schema = schema(h.get("schema"));
      headers.add(h.get("key").textValue(), payload(schema, h.get("value")), schema);
    });
    JsonNode timestamp = node.get("timestamp");
    return new SinkRecord(
        node.get("topic").textValue(), node.get("partition").intValue(),
        key.schema, key.value, value.schema, value.value, node.get("offset").longValue(),
        timestamp.isNull() ? null : timestamp.longValue(),
        timestamp.isNull() ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, headers);
  }

  private static Side side(JsonNode node, boolean schemas) {
    return schemas && !node.isNull() ? withSchema(node) : new Side(null, plain(node));
  }

  // -------------------------------------------------------------------------------- results

  static JsonNode of(SinkRecord record) {
    ObjectNode node = JSON.objectNode();
    boolean schemas = record.keySchema() != null || record.valueSchema() != null;
    node.put("topic", record.topic());
    node.put("partition", record.kafkaPartition());
    node.put("offset", record.kafkaOffset());
    node.put("timestamp", record.timestamp());
    ArrayNode headers = node.putArray("headers");
    for (Header header : record.headers()) {
      ObjectNode one = headers.addObject();
      one.put("key", header.key());
      one.set("schema", of(header.schema()));
      one.set("value", of(header.schema(), header.value()));
    }
    node.set("key", of(record.keySchema(), record.key(), schemas));
    node.set("value", of(record.valueSchema(), record.value(), schemas));
    node.put("schemas", schemas);
    return node;
  }

  private static JsonNode of(Schema schema, Object value, boolean schemas) {
    if (schema == null && (value == null || !schemas)) {
      return of(value);
    }
    return envelope(schema, value);
  }

  private static ObjectNode envelope(Schema schema, Object value) {
    ObjectNode envelope = JSON.objectNode();
    envelope.set("schema", of(schema));
    envelope.set("payload", of(schema, value));
    return envelope;
  }

  static JsonNode of(Schema schema) {
    try {
      return schema == null ? JSON.nullNode() : SCHEMAS.asJsonSchema(schema);
    } catch (StackOverflowError error) {
      return JSON.textNode("unprintable schema: recursive");
    } catch (RuntimeException error) {
      return JSON.textNode("unprintable schema: " + error);
    }
  }

  /** A value with its schema. */
  static JsonNode of(Schema schema, Object value) {
    if (schema == null || value == null) {
      return of(value);
    }
    if (value instanceof Date && schema.name() != null) {
      return ofInstant(schema, ((Date) value).getTime());
    }
    if (value instanceof Struct) {
      ObjectNode node = JSON.objectNode();
      Struct struct = (Struct) value;
      for (Field field : struct.schema().fields()) {
        node.set(field.name(), of(field.schema(), struct.getWithoutDefault(field.name())));
      }
      return node;
    }
    if (value instanceof Collection && schema.type() == Schema.Type.ARRAY) {
      ArrayNode node = JSON.arrayNode();
      ((Collection<?>) value).forEach(item -> node.add(of(schema.valueSchema(), item)));
      return node;
    }
    if (value instanceof Map && schema.type() == Schema.Type.MAP && schema.keySchema() != null) {
      Schema keys = schema.keySchema();
      boolean named = keys.type() == Schema.Type.STRING && !keys.isOptional();
      ObjectNode fields = JSON.objectNode();
      ArrayNode pairs = JSON.arrayNode();
      ((Map<?, ?>) value).forEach((k, v) -> {
        JsonNode inner = of(schema.valueSchema(), v);
        if (named) {
          fields.set(String.valueOf(k), inner);
        } else {
          pairs.add(JSON.arrayNode().add(of(keys, k)).add(inner));
        }
      });
      return named ? fields : pairs;
    }
    if (value instanceof Byte || value instanceof Short || value instanceof Integer) {
      return JSON.numberNode(((Number) value).intValue());
    }
    if (value instanceof Float && Float.isFinite((Float) value)) {
      return JSON.numberNode((Float) value);
    }
    return of(value);
  }

  private static JsonNode ofInstant(Schema schema, long millis) {
    String name = schema.name();
    boolean date = name.equals(org.apache.kafka.connect.data.Date.LOGICAL_NAME);
    boolean small = schema.type() == Schema.Type.INT32 && name.equals(Timestamp.LOGICAL_NAME);
    if (small || (date && millis % DAY_MS == 0)) {
      return typed("$date", LocalDate.ofEpochDay(Math.floorDiv(millis, DAY_MS)).toString());
    }
    if (name.equals(Time.LOGICAL_NAME) && millis >= 0 && millis < DAY_MS) {
      return typed("$time", LocalTime.ofNanoOfDay(millis * 1_000_000).toString());
    }
    return JSON.objectNode().put("$timestamp", millis);
  }

  static ObjectNode typed(String kind, String text) {
    return JSON.objectNode().put(kind, text);
  }

  static ObjectNode bytes(ByteBuffer buffer) {
    byte[] bytes = new byte[buffer.remaining()];
    buffer.duplicate().get(bytes);
    return typed("$bytes", Base64.getEncoder().encodeToString(bytes));
  }

  /** A value without schema. */
  static JsonNode of(Object value) {
    int depth = depth(value);
    return depth > DEPTH_MAX ? JSON.objectNode().put("$deep", depth) : ofPlain(value);
  }

  private static int depth(Object value) {
    int deep = 0;
    Object inner = value;
    while (deep < 100_000) { // down the first branch: what is this deep is a chain
      Iterator<?> items;
      if (inner instanceof Map) {
        items = ((Map<?, ?>) inner).values().iterator();
      } else if (inner instanceof Collection) {
        items = ((Collection<?>) inner).iterator();
      } else {
        return deep;
      }
      deep++;
      inner = items.hasNext() ? items.next() : null;
    }
    return deep;
  }

  private static JsonNode ofPlain(Object value) {
    if (value == null) {
      return JSON.nullNode();
    } else if (value instanceof Boolean) {
      return JSON.booleanNode((Boolean) value);
    } else if (value instanceof String) {
      return JSON.textNode((String) value);
    } else if (value instanceof Long) {
      return JSON.numberNode((Long) value);
    } else if (value instanceof Byte) {
      return JSON.objectNode().put("$int8", (Byte) value);
    } else if (value instanceof Short) {
      return JSON.objectNode().put("$int16", (Short) value);
    } else if (value instanceof Integer) {
      return JSON.objectNode().put("$int32", (Integer) value);
    } else if (value instanceof Float) {
      float number = (Float) value;
      ObjectNode node = JSON.objectNode();
      return Float.isFinite(number)
          ? node.put("$float32", number)
          : node.put("$float32", Float.toString(number));
    } else if (value instanceof Double) {
      double number = (Double) value;
      boolean plain = Double.isFinite(number) && !(number == 0 && 1 / number < 0);
      return plain ? JSON.numberNode(number) : typed("$float64", Double.toString(number));
    } else if (value instanceof BigInteger) {
      return typed("$bigint", value.toString());
    } else if (value instanceof BigDecimal) {
      return typed("$decimal", value.toString());
    } else if (value instanceof byte[]) {
      return bytes(ByteBuffer.wrap((byte[]) value));
    } else if (value instanceof ByteBuffer) {
      return bytes((ByteBuffer) value);
    } else if (value instanceof Date) {
      return JSON.objectNode().put("$timestamp", ((Date) value).getTime());
    } else if (value instanceof UUID) {
      return typed("$uuid", value.toString());
    } else if (value instanceof Struct) {
      Struct struct = (Struct) value;
      ObjectNode node = JSON.objectNode();
      node.set("$struct", envelope(struct.schema(), struct));
      return node;
    } else if (value instanceof Collection) {
      ArrayNode node = JSON.arrayNode();
      ((Collection<?>) value).forEach(item -> node.add(ofPlain(item)));
      return node;
    } else if (value instanceof Map) {
      return ofPlainMap((Map<?, ?>) value);
    }
    return typed("$java", value.getClass().getName() + ": " + value);
  }

  private static JsonNode ofPlainMap(Map<?, ?> map) {
    ObjectNode node = JSON.objectNode();
    if (map.keySet().stream().allMatch(key -> key instanceof String)) {
      map.forEach((k, v) -> node.set((String) k, ofPlain(v)));
      return node;
    }
    ArrayNode pairs = node.putArray("$map");
    map.forEach((k, v) -> pairs.add(JSON.arrayNode().add(ofPlain(k)).add(ofPlain(v))));
    return node;
  }
}

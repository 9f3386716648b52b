package org.apache.iceberg.connect.data;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.iceberg.StructLike;
import org.apache.iceberg.types.Type;
import org.apache.iceberg.types.Types;

/** Iceberg rows and types in the form of the recordings. */
final class Rows {
  private Rows() {}

  static JsonNode row(Types.StructType struct, StructLike row) {
    ObjectNode node = Forms.JSON.objectNode();
    List<Types.NestedField> fields = struct.fields();
    for (int i = 0; i < fields.size(); i++) {
      node.set(fields.get(i).name(), value(fields.get(i).type(), row.get(i, Object.class)));
    }
    return node;
  }

  private static JsonNode value(Type type, Object value) {
    if (value == null) {
      return Forms.JSON.nullNode();
    } else if (type.isStructType()) {
      return row(type.asStructType(), (StructLike) value);
    } else if (type.isListType()) {
      ArrayNode items = Forms.JSON.arrayNode();
      ((List<?>) value).forEach(item -> items.add(value(type.asListType().elementType(), item)));
      return items;
    } else if (type.isMapType()) {
      ObjectNode node = Forms.JSON.objectNode();
      ArrayNode pairs = node.putArray("$map");
      Types.MapType map = type.asMapType();
      ((Map<?, ?>) value).forEach((k, v) -> pairs.add(
          Forms.JSON.arrayNode().add(value(map.keyType(), k)).add(value(map.valueType(), v))));
      return node;
    } else if (value instanceof Integer) {
      return Forms.JSON.numberNode((Integer) value);
    } else if (value instanceof Float && Float.isFinite((Float) value)) {
      return Forms.JSON.numberNode((Float) value);
    } else if (value instanceof Double && Double.isFinite((Double) value)) {
      return Forms.JSON.numberNode((Double) value);
    } else if (value instanceof byte[]) {
      return Forms.bytes(ByteBuffer.wrap((byte[]) value));
    } else if (value instanceof LocalDate) {
      return Forms.typed("$date", value.toString());
    } else if (value instanceof LocalTime) {
      return Forms.typed("$time", clock((LocalTime) value));
    } else if (value instanceof LocalDateTime) {
      return Forms.typed("$timestampntz", instant((LocalDateTime) value));
    } else if (value instanceof OffsetDateTime) {
      LocalDateTime utc =
          ((OffsetDateTime) value).withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime();
      return Forms.typed("$timestamptz", instant(utc) + "Z");
    } else if (value instanceof BigDecimal || value instanceof UUID || !(value instanceof String)) {
      return Forms.of(value);
    }
    return Forms.JSON.textNode((String) value);
  }

  private static String instant(LocalDateTime at) {
    return at.toLocalDate() + "T" + clock(at.toLocalTime());
  }

  private static String clock(LocalTime time) {
    String text = String.format("%02d:%02d:%02d", time.getHour(), time.getMinute(), time.getSecond());
    String fraction = String.format(".%09d", time.getNano()).replaceAll("0+$", "");
    return fraction.equals(".") ? text : text + fraction;
  }

  static JsonNode type(Type type) {
    if (type == null) {
      return Forms.JSON.nullNode();
    }
    ObjectNode node = Forms.JSON.objectNode();
    if (type.isStructType()) {
      node.put("type", "struct");
      ArrayNode fields = node.putArray("fields");
      for (Types.NestedField field : type.asStructType().fields()) {
        ObjectNode one = fields.addObject();
        one.put("name", field.name());
        one.put("required", field.isRequired());
        one.set("type", type(field.type()));
      }
      return node;
    } else if (type.isListType()) {
      node.put("type", "list");
      node.set("element", type(type.asListType().elementType()));
      node.put("element-required", type.asListType().isElementRequired());
      return node;
    } else if (type.isMapType()) {
      node.put("type", "map");
      node.set("key", type(type.asMapType().keyType()));
      node.set("value", type(type.asMapType().valueType()));
      node.put("value-required", type.asMapType().isValueRequired());
      return node;
    }
    return Forms.JSON.textNode(type.toString());
  }
}

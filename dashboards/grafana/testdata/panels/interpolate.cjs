"use strict";
// What Grafana puts in place of variables in titles, names and links: the rules of its
// package @grafana/scenes, as far as dashboards here use them. What it does not know it
// leaves as it is, as Grafana does.

const { getFieldDisplayName, getFieldDisplayValuesProxy, formattedValueToString, formatLabels } = require("@grafana/data");

const reference = /\$(\w+)|\$\{(\w+)((?:\.[^:}]+)|(?:\[[^:}]+))?(?::([^}]+))?\}/g;

const strict = (text) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());

/** What stands at a path such as fields.location, fields[0] or labels.src. */
function at(object, path) {
  return path.split(/[.[\]]+/).filter(Boolean).reduce((o, key) => o?.[key.replace(/^["']|["']$/g, "")], object);
}

/** What a link's value, row or field is. Without a row there is none. */
const contexts = {
  __value({ field, rowIndex }, path) {
    if (rowIndex == null || !field) return undefined;
    if (path === "raw") return field.values[rowIndex];
    const shown = field.display(field.values[rowIndex]);
    return path === "numeric" ? shown.numeric : formattedValueToString(shown);
  },
  __data({ frame, rowIndex }, path) {
    if (rowIndex === undefined) return undefined;
    return at({ name: frame.name, refId: frame.refId, fields: getFieldDisplayValuesProxy({ frame, rowIndex }) }, path) ?? "";
  },
  __field({ frame, field, data }, path) {
    const labels = field.labels && { ...field.labels, toString: () => formatLabels(field.labels, "", true) };
    return at({ name: field.name, displayName: getFieldDisplayName(field, frame, data), labels: labels ?? "" }, path) ?? "";
  },
};

/** Formats, of those that dashboards name. Others are an error, which Grafana only logs. */
const formats = {
  raw: (value) => String(value),
  uriencode: (value) => encodeURI(String(value)),
  percentencode: (value) => strict(String(value)),
  text: (value, variable) => variable?.text ?? String(value),
  queryparam: (value, variable) => "var-" + variable.name + "=" + strict(String(value)),
};

/**
 * interpolator replaces in texts the dashboard's variables, each with its name, text and
 * value, and the range of time, given as the parameters that it has in an address.
 */
function interpolator(variables, range) {
  return function replace(text, scoped, format) {
    return String(text ?? "").replace(reference, (all, plain, braced, path, named) => {
      const name = plain ?? braced;
      const variable = variables.find((v) => v.name === name);
      let value = variable?.value;
      if (name === "__url_time_range") {
        return range;
      } else if (contexts[name]) {
        const context = scoped?.__dataContext?.value;
        value = context && contexts[name](context, (path ?? "").replace(/^\./, ""));
      }
      if (value === undefined) return all;
      const by = named ?? format ?? "raw";
      if (!formats[by]) throw new Error(`no format ${by} in ${all}`);
      return formats[by](typeof value === "object" ? `${value}` : value, variable);
    });
  };
}

module.exports = { interpolator };

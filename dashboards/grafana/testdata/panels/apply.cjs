"use strict";
// What Grafana does with the answer of a query before a panel draws it, by its own package
// @grafana/data: transformations, then the panel's field configuration.

const grafana = require("@grafana/data");
const { lastValueFrom, map } = require("rxjs");

/** Grafana's application registers these properties of a field; which they are is fixed. */
const standard = {
  displayName: [grafana.displayNameOverrideProcessor, { expandTemplateVars: true }],
  unit: [grafana.unitOverrideProcessor],
  min: [grafana.numberOverrideProcessor, {}, grafana.FieldType.number],
  max: [grafana.numberOverrideProcessor, {}, grafana.FieldType.number],
  decimals: [grafana.numberOverrideProcessor, {}, grafana.FieldType.number],
  noValue: [grafana.displayNameOverrideProcessor],
  color: [grafana.identityOverrideProcessor],
  thresholds: [grafana.thresholdsOverrideProcessor],
  mappings: [grafana.valueMappingsOverrideProcessor],
  links: [grafana.dataLinksOverrideProcessor],
};

/** registry has the standard properties, and those of the panel's plugin that are set. */
function registry(config) {
  const custom = new Set(Object.keys(config.defaults.custom ?? {}).map((key) => "custom." + key));
  for (const o of config.overrides) for (const p of o.properties) if (p.id.startsWith("custom.")) custom.add(p.id);
  return new grafana.FieldConfigOptionsRegistry(() => [
    ...Object.entries(standard).map(([id, [process, settings, only]]) => ({
      id, path: id, name: id, process, settings, shouldApply: (field) => !only || field.type === only,
    })),
    ...[...custom].map((id) => ({
      id, path: id.slice("custom.".length), name: id, isCustom: true, process: grafana.identityOverrideProcessor, shouldApply: () => true,
    })),
  ]);
}

/**
 * partition stands for Grafana's transformation partitionByValues, which is a part of its
 * application and of no package: a frame for each combination of the fields' values, which
 * become labels of the fields that are left.
 */
const partition = {
  id: "partitionByValues",
  name: "Partition by values",
  defaultOptions: {},
  operator: (options) => (source) => source.pipe(map(([frame]) => {
    if (!options.naming.asLabels || options.keepFields) throw new Error("this partition only makes labels");
    const keys = options.fields.map((name) => frame.fields.find((f) => f.name === name));
    const rows = new Map();
    for (let i = 0; i < frame.length; i++) {
      const key = JSON.stringify(keys.map((k) => k.values[i]));
      if (!rows.has(key)) rows.set(key, []);
      rows.get(key).push(i);
    }
    return [...rows.values()].map((indices) => ({
      ...frame,
      length: indices.length,
      fields: frame.fields.filter((f) => !keys.includes(f)).map((f) => ({
        ...f,
        config: structuredClone(f.config),
        labels: Object.fromEntries(keys.map((k) => [k.name, String(k.values[indices[0]])])),
        values: indices.map((i) => f.values[i]),
      })),
    }));
  })),
};

/** start prepares what Grafana's application prepares when it is loaded. */
function start() {
  globalThis.window ??= {};
  globalThis.navigator ??= { language: "en-US", languages: ["en-US"] };
  globalThis.window.__grafanaSceneContext = {};
  const transformers = [...new Set(Object.values(grafana.standardTransformers)), partition]; // some have two names
  grafana.standardTransformersRegistry.setInit(() => transformers.map((t) => ({
    id: t.id, name: t.name, transformation: () => Promise.resolve(t),
  })));
}

/** apply gives the frames that the panel is handed, from those that came over the wire. */
async function apply(panel, frames, replace, theme) {
  for (const { id } of panel.transformations) {
    if (!grafana.standardTransformersRegistry.getIfExists(id)) throw new Error(`no transformation ${id}`);
  }
  for (const { matcher } of panel.fieldConfig.overrides) grafana.fieldMatchers.get(matcher.id);
  const data = await lastValueFrom(grafana.transformDataFrame(panel.transformations, frames.map(grafana.dataFrameFromJSON), { interpolate: replace }));
  return grafana.applyFieldOverrides({
    data, theme, replaceVariables: replace, timeZone: "utc", fieldConfig: panel.fieldConfig, fieldConfigRegistry: registry(panel.fieldConfig),
  });
}

module.exports = { start, apply };

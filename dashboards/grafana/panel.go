package grafana

import (
	"github.com/grafana-tools/sdk"
)

// object is JSON that the sdk has no current model of.
type object = map[string]any

// Formats of the ClickHouse data source's answers.
const (
	formatSeries = 0 // long frames become wide ones
	formatTable  = 1
)

// panel describes one panel. Options and the rest are in the terms of Grafana's panel
// plugins, the types of which are in @grafana/schema.
type panel struct {
	id            uint // data links name it
	title, about  string
	kind          string
	width, height int
	targets       []object
	source        object // data source, of ClickHouse when nil
	defaults      object // fieldConfig.defaults
	overrides     []object
	options       object
	transform     []object
	points        int // maxDataPoints; 0 leaves it to the width of the panel
	interval      string
}

func storeSource() object { return object{"type": storePlugin, "uid": "${datasource}"} }

// sqlTarget asks the ClickHouse data source.
func sqlTarget(sql string, format int) object {
	kind := "table"
	if format == formatSeries {
		kind = "timeseries"
	}
	return object{
		"refId": "A", "datasource": storeSource(), "editorType": "sql", "pluginVersion": "4.0.0",
		"rawSql": sql, "format": format, "queryType": kind,
	}
}

// build makes the sdk's panel, at the place that layout gave it.
func (p *panel) build(x, y int) *sdk.Panel {
	out := sdk.NewCustom(p.title)
	out.ID, out.Type = p.id, p.kind
	out.GridPos.X, out.GridPos.Y, out.GridPos.W, out.GridPos.H = &x, &y, &p.width, &p.height
	if p.about != "" {
		out.Description = &p.about
	}
	custom := sdk.CustomPanel{}
	if p.kind == "row" {
		custom["collapsed"], custom["panels"] = false, []object{}
	} else {
		custom["options"] = orEmpty(p.options)
		source := p.source
		if source == nil {
			source = storeSource()
		}
		out.Datasource = source
		custom["targets"] = p.targets
		custom["fieldConfig"] = object{"defaults": orEmpty(p.defaults), "overrides": append([]object{}, p.overrides...)}
		custom["transformations"] = append([]object{}, p.transform...)
	}
	if p.points > 0 {
		custom["maxDataPoints"] = p.points
	}
	if p.interval != "" {
		custom["interval"] = p.interval
	}
	out.CustomPanel = &custom
	return out
}

func orEmpty(o object) object {
	if o == nil {
		return object{}
	}
	return o
}

// override sets properties of the field of that name.
func override(field string, properties object) object {
	return overrideBy("byName", field, properties)
}

// hide leaves a column out of a table.
func hide(field string) object {
	return override(field, object{"custom.hideFrom.viz": true})
}

// overrideBy sets properties of the fields that one of Grafana's matchers finds.
func overrideBy(matcher, options string, properties object) object {
	list := make([]object, 0, len(properties))
	for _, id := range sortedKeys(properties) {
		list = append(list, object{"id": id, "value": properties[id]})
	}
	return object{"matcher": object{"id": matcher, "options": options}, "properties": list}
}

func legend(show bool) object {
	return object{"showLegend": show, "displayMode": "list", "placement": "bottom", "calcs": []string{}}
}

func tooltip(mode string) object { return object{"mode": mode, "sort": "none"} }

func color(mode string) object { return object{"mode": mode} }

func hidden() object { return object{"legend": false, "tooltip": false, "viz": false} }

// colored fills the cells of a table's columns by their value. Columns share what room there
// is and are at least so wide, in pixels: 150 unless told otherwise.
func colored(minWidth int) object {
	return object{"align": "center", "inspect": false, "minWidth": minWidth, "cellOptions": object{"type": "color-background", "mode": "basic"}}
}

// plain are a table's cells without colours. Empty ones stay empty where a table without
// rows says something.
func plain() object {
	return object{
		"custom": object{"align": "auto", "inspect": true, "minWidth": 80, "cellOptions": object{"type": "auto"}},
		"color":  color("thresholds"), "thresholds": thresholds("text"), "mappings": []object{empty()},
	}
}

// saying gives a table the words that it shows when it has no rows.
func saying(words string, defaults object) object {
	defaults["noValue"] = words
	return defaults
}

// empty maps texts without a letter: the colour of no location is none.
func empty() object { return special("empty", "transparent") }

// special maps one of the values that Grafana has words for to no text on that colour.
func special(match, color string) object {
	return object{"type": "special", "options": object{"match": match, "result": object{"text": "", "color": color, "index": 0}}}
}

func tableOptions() object { return object{"cellHeight": "sm", "showHeader": true, "frameIndex": 0} }

// thresholds of one step: the colour of what no mapping colours.
func thresholds(base string) object {
	return object{"mode": "absolute", "steps": []object{{"color": base, "value": nil}}}
}

// lines are a time series panel's fields.
func lines(fill int) object {
	return object{
		"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false,
		"lineInterpolation": "stepAfter", "hideFrom": hidden(),
	}
}

func lineOptions() object { return object{"legend": legend(true), "tooltip": tooltip("multi")} }

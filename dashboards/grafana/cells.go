package grafana

import (
	"fmt"
	"maps"

	"github.com/grafana-tools/sdk"

	"github.com/csigscope/csigscope/decode/csig"
)

// cellsBoard shows the two matrices, the cells that a location slows down, and details of one cell:
// its path, flows and findings.
func cellsBoard(o *Options) board {
	colors := mappings(o.Locations)
	panels := []panel{
		meanPanel(o, csig.MinABWRatio, "Mean available bandwidth, of capacity"),
		modePanel(o, colors),
		sufferersPanel(colors),
	}
	panels = append(panels, cellPanels(colors)...)
	panels = append(panels,
		meanPanel(o, csig.MinABW, "Mean available bandwidth"),
		meanPanel(o, csig.MaxDelay, "Mean of the worst hop's delay"),
		meanPanel(o, csig.MaxNQD, "Mean of the worst hop's queue depth"),
	)
	return board{
		uid: CellsUID, title: "csigscope / Cells", name: "cells", refresh: "10s", from: "now-15m",
		variables: append([]sdk.TemplateVar{
			sourceVariable("datasource", "Store", storePlugin), signalVariable(signals), resolutionVariable(o.Fine), rowsVariable(), levelVariable(),
			rangeVariable("src", "Source", fmt.Sprintf(worstFirst, "src_group", "true")),
			rangeVariable("dst", "Destination", fmt.Sprintf(worstFirst, "dst_group", fromSource)),
			locationVariable(),
		}, thresholdVariables(o.Thresholds)...),
		panels: panels,
	}
}

// matrixHeight makes the cells of 16 groups high enough for their ranks.
const matrixHeight = 18

// matrix returns a panel that draws the cells of a signal with the plugin.
func matrix(o *Options, title, about, signal, mean string, options object) panel {
	cells, groups := sqlTarget(cellsSQL(signal, mean), formatTable), sqlTarget(groupsSQL, formatTable)
	groups["refId"] = "B"
	if len(o.Locations) > 0 {
		options["colors"] = locationColors(o.Locations)
	}
	return panel{
		title: title, about: about, kind: MatrixPanelID, width: gridWidth / 2, height: matrixHeight,
		targets: []object{cells, groups}, options: options,
	}
}

// table turns rows of (src, dst, value) into a matrix, for a Grafana without the plugin.
func table(p panel) panel {
	p.kind, p.width, p.height, p.options = "table", gridWidth, matrixHeight, tableOptions()
	p.options["frozenColumns"] = object{"left": 1}
	p.transform = []object{{"id": "groupingToMatrix", "options": object{"columnField": "dst", "rowField": "src", "valueField": "value", "emptyValue": "null"}}}
	// Grafana puts an override's lists before those of the defaults, so an override could not
	// remove a link or a mapping from the column of names.
	cells := object{"mappings": p.defaults["mappings"], "links": []object{toCells("path of ${__data.fields[0]} to ${__field.name}",
		"&var-src=${__data.fields[0]:percentencode}&var-dst=${__field.name:percentencode}"+anywhere)}}
	delete(p.defaults, "mappings")
	p.overrides = []object{
		overrideBy("byRegexp", `/^(?!src\\dst$)/`, cells),
		override(`src\dst`, object{"custom.cellOptions": object{"type": "auto"}, "custom.align": "left", "custom.width": 80, "displayName": "from, to"}),
	}
	return p
}

// modePanel is the matrix of the selected signal's bottlenecks.
func modePanel(o *Options, colors []object) panel {
	const title = "Mode of the bottleneck (${signal:text})"
	const about = "The location that most heavy observations of the cell name; its number is its rank in the legend. Cells with fewer than 10 samples say nothing; no data is silence, not health. Click on a cell for its path and flows."
	if !o.Tables {
		p := matrix(o, title, about, "{signal}", "{mean}", object{"kind": "mode", "direction": "min"})
		p.overrides = meanColumns()
		return p
	}
	names := colored(50)
	names["align"] = "left" // long names are cut off at the end
	return table(panel{
		title: title, about: about, targets: []object{sqlTarget(modeTableSQL, formatTable)},
		defaults: object{"custom": names, "color": color("thresholds"), "thresholds": thresholds(unknownColor), "mappings": wordless(colors)},
	})
}

func meanPanel(o *Options, s csig.Signal, title string) panel {
	const about = "Source groups in rows, destination groups in columns. Hatched: no observation, which is silence. Click on a cell for its path and flows."
	signal := fmt.Sprintf("signal = %d", s)
	if !o.Tables {
		direction := "min"
		if s.Direction() == csig.Max {
			direction = "max"
		}
		p := matrix(o, title, about, signal, "mean", object{"kind": "mean", "direction": direction})
		p.defaults = object{"unit": unitOf(s)}
		return p
	}
	scheme := "continuous-RdYlGr" // low values are red
	if s.Direction() == csig.Max {
		scheme = "continuous-GrYlRd"
	}
	// Without a mapping, a cell without a value gets the color of the lowest value.
	defaults := object{"custom": colored(50), "unit": unitOf(s), "color": color(scheme), "decimals": 1, "mappings": []object{special("null", noDataColor)}}
	if s.Unit() == csig.Ratio {
		defaults["min"], defaults["max"], defaults["decimals"] = 0, 1, 0
	}
	return table(panel{
		title: title, about: "Source groups in rows, destination groups in columns. Empty: fewer than 10 samples, or none. Click on a cell for its path and flows.",
		targets: []object{sqlTarget(meanTableSQL(signal), formatTable)}, defaults: defaults,
	})
}

// sufferersPanel lists the cells that a location slows down.
func sufferersPanel(colors []object) panel {
	toPath := toCells("path of this cell", "&var-src=${__data.fields.src:percentencode}&var-dst=${__data.fields.dst:percentencode}"+anywhere)
	path := object{"links": []object{toPath}}
	location := object{"mappings": colors, "custom.width": 160, "thresholds": thresholds(unknownColor), "custom.cellOptions": object{"type": "color-background", "mode": "basic"}}
	second := maps.Clone(location)
	second["displayName"] = "then"
	return panel{
		title: "Cells that suffer", kind: "table", id: sufferersPanelID, width: gridWidth, height: 8, defaults: plain(), options: tableOptions(),
		about:   "Cells whose heavy observations name the chosen location first or second; without a location, all that are congested or were heavy. Click on one for its path and flows.",
		targets: []object{sqlTarget(sufferersSQL, formatTable)},
		overrides: []object{
			override("src", merged(path, object{"displayName": "source"})), override("dst", merged(path, object{"displayName": "destination"})),
			override("mode", location), override("second", second), override("since", object{"unit": "dateTimeAsLocal", "custom.width": 190}),
			override("heavy", object{"displayName": "heavy share", "unit": "percentunit"}), override("share", object{"displayName": "of these at the mode", "unit": "percentunit"}),
		},
	}
}

func merged(a, b object) object {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// unitOf returns Grafana's name of the unit of a signal's values.
func unitOf(s csig.Signal) string {
	switch s.Unit() {
	case csig.BitPerSecond:
		return "bps"
	case csig.Ratio:
		return "percentunit"
	case csig.Nanosecond:
		return "ns"
	}
	return "sishort"
}

// meanColumns gives the column of means the unit of the selected signal: queries put the signal
// into the column's name, and the panel shows it without.
func meanColumns() []object {
	var columns []object
	for _, s := range signals {
		columns = append(columns, override("mean "+signalTitle(s), object{"unit": unitOf(s), "decimals": 1, "displayName": "mean"}))
	}
	return columns
}

// cellPanels show the selected cell. Links lead from its path to its flows to its findings.
func cellPanels(colors []object) []panel {
	const chosen = "&${src:queryparam}&${dst:queryparam}"
	toFlows := toCells("flows that it slows down", chosen+fmt.Sprintf("&var-location=${__value.text:percentencode}&viewPanel=%d", flowsPanel))
	toFindings := toCells("findings there", chosen+fmt.Sprintf("&var-location=${__data.fields.location:percentencode}&viewPanel=%d", findingsPanel))
	share := object{"unit": "percentunit", "custom.axisPlacement": "right", "min": 0, "max": 1}
	return []panel{
		{title: "From $src to $dst", kind: "row", width: gridWidth, height: 1},
		{
			title: "Path of $src to $dst", kind: "table", id: pathPanel, width: 12, height: 9, defaults: plain(), options: tableOptions(),
			about:   "Where the path from source to destination choked: in how many windows a location was the mode of the cell.",
			targets: []object{sqlTarget(pathSQL, formatTable)},
			overrides: []object{
				locationColumn(colors, toFlows), named("candidates", "candidate ports"),
			},
		},
		{
			title: "$src to $dst over time", kind: "timeseries", width: 12, height: 9, options: lineOptions(),
			targets:   []object{sqlTarget(cellSQL, formatSeries)},
			defaults:  object{"custom": lines(0), "color": color("palette-classic")},
			overrides: append(meanColumns(), override("heavy", merged(share, object{"displayName": "heavy share"})), override("trimmed", share)),
		},
		{
			title: "Flows of $src to $dst", kind: "table", id: flowsPanel, width: gridWidth, height: 9, defaults: plain(), options: tableOptions(),
			about:     aboutFlows,
			targets:   []object{sqlTarget(flowsSQL, formatTable)},
			overrides: append(flowColumnTitles(), locationColumn(colors, toFindings), override("source", object{"links": []object{toFindings}})),
		},
		{
			title: "Findings", kind: "table", id: findingsPanel, width: gridWidth, height: 8, defaults: plain(), options: tableOptions(),
			about:     "Violations of the protocol or the configuration in this range, at the chosen location or everywhere.",
			targets:   []object{sqlTarget(findingsSQL, formatTable)},
			overrides: []object{override("severity", object{"mappings": severities(), "custom.cellOptions": object{"type": "color-text"}})},
		},
		{title: "Other signals", kind: "row", width: gridWidth, height: 1},
	}
}

// flowColumnTitles returns the units and titles of the flow columns.
func flowColumnTitles() []object {
	return append(meanColumns(), override("bytes", object{"unit": "bytes"}),
		named("source_port", "source port"), named("destination_port", "destination port"))
}

func severities() []object {
	return []object{{"type": "value", "options": object{
		"error": object{"color": "red", "index": 0}, "warning": object{"color": "orange", "index": 1}, "info": object{"color": "blue", "index": 2},
	}}}
}

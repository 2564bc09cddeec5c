package main

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/replay"
)

// countsOf is what was read and what became of it.
func countsOf(result *replay.Result, e *replay.Examined) []report.Count {
	c := &result.Counts
	list := []report.Count{{Name: "packets", N: result.Packets}}
	for i, n := range result.Frames {
		if n > 0 {
			list = append(list, report.Count{Name: "packets, " + decode.Reason(i).String(), N: n})
		}
	}
	list = append(list, report.Count{Name: "observations", N: c.In, About: "tags and reflections: stored + late + rejected + overflow"},
		report.Count{Name: "stored", N: c.Stored}, report.Count{Name: "late", N: c.Late}, report.Count{Name: "overflow", N: c.Overflow})
	for i, n := range c.Rejected {
		if n > 0 {
			list = append(list, report.Count{Name: "rejected, " + aggregate.Rejection(i).String(), N: n})
		}
	}
	return append(list, report.Count{Name: "untouched", N: c.Untouched, About: "no hop replaced the tag"},
		report.Count{Name: "trimmed", N: c.Trimmed, About: "counted apart, out of the mode"},
		report.Count{Name: "empty or invalid reflections", N: e.Decoded.EmptyReflections + e.Decoded.InvalidReflections, About: "of paths that are not CSIG-capable"})
}

// unknownOf is what could not be known, and why.
func unknownOf(result *replay.Result, e *replay.Examined, n *network) []string {
	list := []string{}
	say := func(count uint64, format string, a ...any) {
		if count > 0 {
			list = append(list, fmt.Sprintf("%d %s", count, fmt.Sprintf(format, a...)))
		}
	}
	say(result.Frames[decode.Hidden], "packets are encrypted by MACsec: tags inside them are hidden")
	say(e.Decoded.Encrypted, "packets are in ESP or PSP: reflections inside are for the hosts alone to see")
	say(e.Untracked, "packets are of more flows than are told apart: whether these lose tags is not known")
	say(e.Pathless, "reflections are of more flows than are told apart: they do not clear ports that seem stuck")
	say(result.Counts.Unknown, "observations are of a signal type that no table gives a meaning")
	say(result.Damaged.Bytes, "bytes of damaged captures are left out")
	for link, packets := range result.SkippedLink {
		say(packets, "packets are of link type %s, which is not read", link)
	}
	for _, cut := range result.Cuts {
		list = append(list, cut.Error())
	}
	for i := range result.Counts.Rejected {
		if aggregate.Rejection(i) == aggregate.RejectPlace {
			say(result.Counts.Rejected[i], "observations were made before the end of their path, and enter no heatmap")
		}
	}
	if n.config.Flows.Top.n == 0 {
		list = append(list, "flows are not told apart, as the configuration has it (flows: top)")
	}
	if len(n.fabric.Locations()) == 0 {
		list = append(list, "without a fabric file (--fabric), locations are raw locator metadata and groups are prefixes")
	}
	if e.Findings == nil {
		list = append(list, "what a switch does to packets is for two captures to tell, before and after it: csigscope conform")
	}
	return list
}

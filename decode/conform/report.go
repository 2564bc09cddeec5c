package conform

// Counts are the packets of a Judge.
type Counts struct {
	Before       uint64 `json:"before"` // packets into the device that can be matched
	BeforeTagged uint64 `json:"before_tagged"`
	After        uint64 `json:"after"`
	AfterTagged  uint64 `json:"after_tagged"`
	Unknown      uint64 `json:"unknown"` // on either side, packets that cannot be matched

	Matched   uint64 `json:"matched"`
	Trimmed   uint64 `json:"trimmed"`   // of those, packets that lost their end
	Lost      uint64 `json:"lost"`      // that did not come out, or only in fragments
	Extra     uint64 `json:"extra"`     // that did not go in
	Copies    uint64 `json:"copies"`    // packets that came out more often than they went in
	Ambiguous uint64 `json:"ambiguous"` // equal packets, some of them missing, with different tags
	Forgotten uint64 `json:"forgotten"` // not matched, for lack of memory

	Judged  uint64 `json:"judged"`  // pairs
	Updated uint64 `json:"updated"` // by the device, as far as known

	// Not judged:
	NoTable      uint64 `json:"no_table"`      // of a signal type without a table: the tighter value is unknown
	OwnUnknown   uint64 `json:"own_unknown"`   // updates that kept the only known locator metadata
	LossUnknown  uint64 `json:"loss_unknown"`  // lost tagged packets: in fragments, or without enough untagged ones of their flow and size to compare with
	PathsIgnored uint64 `json:"paths_ignored"` // packets of unknown flows, of flows beyond the remembered ones, or of flows that rarely changed their port
	NoMetric     uint64 `json:"no_metric"`     // without a metric of the port at the time
}

// Finding is a rule that the device broke.
type Finding struct {
	Rule      string    `json:"rule"`
	Severity  Severity  `json:"severity"`
	Source    string    `json:"source"`
	Demand    string    `json:"demand"`
	Count     uint64    `json:"count"` // packets
	Otherwise string    `json:"otherwise"`
	Examples  []Example `json:"examples"`
}

// Report is the result of a Judge.
type Report struct {
	Counts   Counts    `json:"counts"`
	Findings []Finding `json:"findings"` // in the order of the rules; notes are among them
	// WithMetrics says that values were checked against local metrics.
	WithMetrics bool `json:"with_metrics"`
}

// Broken returns the number of findings that are errors or warnings.
func (r *Report) Broken() (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity != Note {
			n++
		}
	}
	return n
}

// Unjudged lists the rules that nothing was compared with, and the reason, which all of them share.
func (r *Report) Unjudged() (names []string, why string) {
	for rule := range Rule(NumRules) {
		if reason := r.notJudged(rule); reason != "" {
			names, why = append(names, rule.Info().Name), reason
		}
	}
	return names, why
}

// notJudged returns the reason why a rule is not judged, empty if it is.
func (r *Report) notJudged(rule Rule) string {
	switch {
	case r.Counts.Judged == 0:
		return "no packet was found on both sides"
	case r.Counts.BeforeTagged == 0 && rule.needsTag():
		return "no packet before the device has a tag"
	case !r.WithMetrics && rule.needsMetrics():
		return "counters of the captured ports at the time of their packets are missing (--metrics)"
	}
	return ""
}

// Report returns the result. It ends the Judge.
func (j *Judge) Report() *Report {
	j.counts.Lost = j.losses.lost[0] + j.losses.lost[1]
	j.judgeLocators()
	j.judgeStripping()
	j.judgeLosses()
	j.judgePaths()
	if j.cfg.Metrics != nil {
		j.counts.NoMetric = j.cfg.Metrics.missing
	}
	r := &Report{Counts: j.counts, Findings: []Finding{}, WithMetrics: j.cfg.Metrics != nil && j.cfg.Metrics.judges(j.cfg.Ports)}
	for rule := range Rule(NumRules) {
		b := &j.breaches[rule]
		if b.count == 0 {
			continue
		}
		for i := range b.examples {
			e := &b.examples[i]
			if e.After != 0 || e.portNum != 0 {
				e.Port = j.cfg.Ports[e.portNum]
			}
			if e.Before != 0 && e.beforeFile < len(j.cfg.Files) {
				e.BeforeFile = j.cfg.Files[e.beforeFile]
			}
			if e.After != 0 && e.afterFile < len(j.cfg.Files) {
				e.AfterFile = j.cfg.Files[e.afterFile]
			}
		}
		about := rule.Info()
		r.Findings = append(r.Findings, Finding{
			Rule: about.Name, Severity: about.Severity, Source: about.Source, Demand: about.Demand,
			Otherwise: about.Otherwise, Count: b.count, Examples: b.examples,
		})
	}
	return r
}

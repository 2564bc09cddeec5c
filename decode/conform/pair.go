package conform

import "github.com/csigscope/csigscope/decode/csig"

// pair judges a packet after the device by the same packet before it.
func (j *Judge) pair(w *waiter, after *sighting) {
	before := &w.sighting
	j.counts.Judged++
	j.paths.add(w, after.port)
	if after.orphan && !before.orphan || after.strange && !before.strange {
		j.broke(Malformed, before, after)
		return
	}
	switch {
	case !before.tagged && !after.tagged:
		return
	case !before.tagged:
		j.broke(Inserted, before, after)
		return
	}
	j.stripping[after.port].add(before, after)
	if !after.tagged {
		return // decided at the end
	}
	if before.Layout != after.Layout {
		j.broke(FormatChanged, before, after)
		return
	}
	if before.T != after.T {
		j.broke(TypeChanged, before, after)
		return
	}
	if before.R != after.R && (j.cfg.Role != Ingress || after.R != 0) {
		j.broke(ReservedChanged, before, after)
	}
	if j.trimBit(before, after) {
		j.fields(before, after)
	}
}

// trimBit judges D, the bit of trimmed packets. An ingress edge resets the D of an untrusted sender.
// more is false if the tag was not scrubbed, which is then counted already.
func (j *Judge) trimBit(before, after *sighting) (more bool) {
	ingress, whole := j.cfg.Role == Ingress, !after.trimmedFrom(before)
	switch {
	case before.D && !after.D && !ingress:
		j.broke(TrimCleared, before, after)
	case !before.D && after.D && whole:
		j.broke(TrimInvented, before, after)
	case before.D && after.D && whole && ingress && j.updates(before.T):
		j.broke(NotScrubbed, before, after)
		return false
	}
	return true
}

// fields judges S and LM, of packets with the same layout and type.
func (j *Judge) fields(before, after *sighting) {
	same, ingress := before.S == after.S && before.LM == after.LM, j.cfg.Role == Ingress
	table := j.domain.Table(before.Layout, before.T)
	switch {
	case !j.updates(before.T):
		switch {
		case same || ingress && table != nil && table.Untouched(after.S): // an edge may reset all types
		case ingress && table == nil:
			j.counts.NoTable++
		default:
			j.broke(Transparent, before, after)
		}
	case before.D && !ingress:
		if !same {
			j.broke(TrimFrozen, before, after)
		}
	case table == nil:
		j.judgeUnknown(before, after)
	case ingress && (!table.Untouched(before.S) || table.Untouched(after.S)):
		j.scrubbed(table, before, after)
	default:
		j.replaced(table, before, after)
	}
}

// judgeUnknown judges a signal type without a table. It cannot tell which value is tighter, only that S
// and LM change together. Behind an ingress edge it cannot tell even that, since the initial value is
// unknown, too.
func (j *Judge) judgeUnknown(before, after *sighting) {
	j.counts.NoTable++
	switch {
	case j.cfg.Role == Ingress:
	case before.S == after.S && before.LM != after.LM:
		j.broke(LocatorAlone, before, after)
	case before.S != after.S && before.LM == after.LM:
		j.of(after).keep(before, after, LocatorKept)
	case before.S != after.S:
		j.counts.Updated++
		j.of(after).write(before, after)
	}
}

// updates reports whether the device replaces signals of the type.
func (j *Judge) updates(t uint8) bool {
	return j.cfg.Role != PassThrough && (j.cfg.Signals == 0 || j.cfg.Signals>>t&1 == 1)
}

// scrubbed judges an ingress edge, which must not let a sender's tag through. The device replaces
// it by the initial value, or by its own value with its own locator metadata; whether that is its
// own is decided at the end.
func (j *Judge) scrubbed(table *csig.Table, before, after *sighting) {
	switch {
	case table.Untouched(after.S):
	case !table.Aggregation().Locates() || before.LM != after.LM:
		j.written(table, before, after)
	default:
		j.of(after).keep(before, after, NotScrubbed)
	}
	j.metric(table, table.Initial(), before, after)
}

// replaced judges compare-and-replace.
func (j *Judge) replaced(table *csig.Table, before, after *sighting) {
	from, to := table.Code(before.S), table.Code(after.S)
	locates := table.Aggregation().Locates()
	initial := j.cfg.Uninitialized && table.Untouched(before.S) // its code may be written again
	looser := beyond(table, before.S)
	switch {
	case before.S == after.S && before.LM == after.LM:
	case before.S == after.S && initial:
		j.written(table, before, after)
	case before.S == after.S:
		j.broke(LocatorAlone, before, after)
	case from == to && !initial && !looser:
		j.broke(ReservedChanged, before, after)
	case from != to && !looser && !table.Aggregation().Direction().Tighter(to, from):
		j.broke(Direction, before, after)
	case table.Raw(to) != after.S:
		j.broke(ReservedChanged, before, after)
	case locates && before.LM == after.LM:
		j.of(after).keep(before, after, LocatorKept)
	default:
		j.written(table, before, after)
	}
	j.metric(table, before.S, before, after)
}

// beyond reports whether S is an initial value with a code that the table does not have: looser than
// all codes (draft-ravi-ippm-csig-01, section 5.3.3).
func beyond(table *csig.Table, s uint32) bool {
	mask, shift := table.Field()
	return table.Untouched(s) && s&mask>>shift >= table.Codes()
}

// written remembers the locator metadata that the device wrote.
func (j *Judge) written(table *csig.Table, before, after *sighting) {
	j.counts.Updated++
	if table.Aggregation().Locates() {
		j.of(after).write(before, after)
	}
}

// metric judges the value after the device by the port's measurement. A sum or count over hops is
// not one port's value.
func (j *Judge) metric(table *csig.Table, from uint32, before, after *sighting) {
	if j.cfg.Metrics == nil || !table.Aggregation().Locates() {
		return
	}
	if rule, broken := j.cfg.Metrics.judge(j.cfg.Ports[after.port], table, from, after, j.cfg.Uninitialized); broken {
		j.broke(rule, before, after)
	}
}

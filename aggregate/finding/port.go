package finding

import (
	"fmt"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxPorts bounds the ports and signals whose values are followed.
const maxPorts = 1 << 16

// portKey is a port and a signal in a layout.
type portKey struct {
	location aggregate.LocationID
	layout   csig.Layout
	t        uint8
}

// portState is the run of equal values that a port is writing, and the longest one.
type portState struct {
	run, best run
	at        fabric.Location
	table     *csig.Table
	total     uint64
}

// run is observations of one code, one after the other.
type run struct {
	code     uint32
	n        uint64
	from, to int64
	packets  []Packet
}

// port follows what a port writes. An idle port writes one value as well, and a saturated
// one: only values that are heavily loaded and not the tightest one make a port stuck.
func (d *Detector) port(table *csig.Table, at *fabric.Location, capacity uint64, code uint32, tap *Tap, o *decode.Observation) {
	k := portKey{at.ID, o.Tag.Layout, o.Tag.T}
	p := d.ports[k]
	if p == nil {
		if len(d.ports) >= maxPorts {
			return
		}
		p = &portState{at: *at, table: table}
		d.ports[k] = p
	}
	p.total++
	if p.run.n == 0 || p.run.code != code {
		p.end()
		p.run = run{code: code, from: o.TimeNS, to: o.TimeNS}
	}
	if p.run.n++; len(p.run.packets) < maxPackets && suspicious(table, capacity, code) {
		p.run.packets = append(p.run.packets, Packet{tap.File, o.Packet})
	}
	p.run.from, p.run.to = min(p.run.from, o.TimeNS), max(p.run.to, o.TimeNS)
}

// end keeps a run that is the longest so far of those with packets.
func (p *portState) end() {
	if len(p.run.packets) > 0 && p.run.n > p.best.n {
		p.best = p.run
	}
}

func suspicious(table *csig.Table, capacity uint64, code uint32) bool {
	lo, hi, ok := table.HeavyCodes(capacity)
	if !ok || code < lo || code > hi {
		return false
	}
	if table.Aggregation().Direction() == csig.Min {
		return code > 0
	}
	return code < table.Codes()-1
}

// stuck are the findings of ports whose longest run is too long.
func (d *Detector) stuck() (list []Finding) {
	for _, p := range d.ports {
		p.end()
		r := &p.best
		if r.n < d.cfg.StuckCount || r.to-r.from < int64(d.cfg.StuckTime) {
			continue
		}
		signal := p.table.Signal()
		subject := p.at.Name + " " + signal.String()
		low, _, _ := p.table.Range(r.code)
		f := Finding{
			Kind: StuckPort, ID: idOf(StuckPort, subject), Subject: subject, From: r.from, To: r.to, Count: r.n, Of: p.total, Packets: r.packets,
			Evidence: fmt.Sprintf("%d observations in a row say %s, to the bit", r.n, csig.FormatQuantity(signal.Unit(), float64(low))),
		}
		f.place(&p.at)
		list = append(list, f)
	}
	return list
}

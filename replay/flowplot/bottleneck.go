package flowplot

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
)

// path is a flow's 5-tuple without the protocol, in the direction of its data.
type path struct {
	src, dst         netip.Addr
	srcPort, dstPort uint16
}

// locator finds the flows' bottlenecks in reflections.
type locator struct {
	run    *Run
	fabric *fabric.Fabric
	domain *csig.Domain
	flows  map[path]*Flow
}

func (r *Run) addBottlenecks(f *fabric.Fabric, domain *csig.Domain, captures []string) error {
	l := locator{run: r, fabric: f, domain: domain, flows: map[path]*Flow{}}
	for i := range r.Flows {
		flow := &r.Flows[i]
		src, srcErr := netip.ParseAddr(flow.SrcIP)
		dst, dstErr := netip.ParseAddr(flow.DstIP)
		if err := errors.Join(srcErr, dstErr); err != nil {
			return fmt.Errorf("plot flows: flow %d: %w", flow.Flow, err)
		}
		if flow.Transport == scenario.Pony {
			l.flows[path{src, dst, flow.DstPort, flow.SrcPort}] = flow
			continue
		}
		l.flows[path{src, dst, flow.SrcPort, flow.DstPort}] = flow
	}
	for _, name := range captures {
		if err := l.capture(name); err != nil {
			return fmt.Errorf("plot flows: %w", err)
		}
	}
	return nil
}

// capture counts the reflections in one capture.
func (l *locator) capture(name string) error {
	r, err := capture.Open(name, capture.Options{})
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := decode.New(decode.Config{Domain: l.domain})
	if err != nil {
		return err
	}
	var batch capture.Batch
	var result decode.Result
	for {
		if err := r.ReadBatch(&batch); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		for i := range batch.N {
			frame := &batch.Frames[i]
			d.Decode(frame.Data, &result)
			for n := range result.N {
				l.observe(&result.Obs[n], frame.TimeNS)
			}
		}
	}
}

// observe counts a reflection of max(PD) in its flow and interval. The packet that carries it
// travels against the flow.
func (l *locator) observe(o *decode.Observation, timeNS int64) {
	if o.Kind != decode.Reflection || o.Flags&decode.HasPorts == 0 || o.Tag.Signal() != csig.MaxDelay {
		return
	}
	dst, src := o.Addrs()
	f := l.flows[path{src, dst, o.DstPort, o.SrcPort}]
	if f == nil {
		return
	}
	at := (timeNS - l.run.Start.UnixNano()) / l.run.Interval.Nanoseconds()
	table := l.domain.Table(o.Tag.Layout, o.Tag.T)
	if at < 0 || at >= int64(len(f.Samples)) || table == nil {
		return
	}
	s := &f.Samples[at]
	s.Reflections++
	if table.Untouched(o.Tag.S) {
		return
	}
	id, capacity := l.fabric.Locate(o.Tag.Layout, o.Tag.T, o.Tag.LM, src, dst)
	low, high, ok := table.HeavyCodes(capacity)
	if code := table.Code(o.Tag.S); !ok || code < low || code > high {
		return
	}
	if location, ok := l.fabric.Location(id); ok {
		s.Heavy[location.Name]++
	}
}

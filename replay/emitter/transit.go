package emitter

import "github.com/csigscope/csigscope/decode/csig"

// transit is what a switch does to a tag as the packet leaves through a port: if
// the port's value is, after quantization, strictly tighter than the tag's, it
// replaces value and locator metadata together, otherwise it leaves both alone
// (sections 4.1.3, 5.3.3 and 5.4.2). behind is the bytes that the packet left in
// the queue.
func (s *sim) transit(number int32, p *port, k *packet, behind int64) {
	m := &k.tag
	sig := &s.signals[m.signal]
	code := s.local(p, sig, k, behind)
	if sig.direction.Tighter(code, m.code) {
		m.code, m.lm, m.writer = code, sig.metadata[number], number
	}
}

// local is the code of the port's own value.
func (s *sim) local(p *port, sig *signal, k *packet, behind int64) uint32 {
	switch sig.kind {
	case csig.MinABW, csig.MinABWRatio:
		if !p.meter.coded {
			s.encodeABW(p)
		}
		return p.meter.codes[sig.kind]
	case csig.MaxDelay:
		return sig.table.Quantize(uint64(k.started-k.entered+s.pipeline) / 1000)
	default:
		return sig.table.Quantize(mulDiv(uint64(behind), 1e6, p.buffer))
	}
}

// encodeABW quantizes what the port offers once an interval instead of once a
// packet.
func (s *sim) encodeABW(p *port) {
	abw, ratio := p.meter.available(p.kbps)
	for i := range s.signals {
		switch sig := &s.signals[i]; sig.kind {
		case csig.MinABW:
			p.meter.codes[sig.kind] = sig.table.Quantize(abw)
		case csig.MinABWRatio:
			p.meter.codes[sig.kind] = sig.table.Quantize(ratio)
		}
	}
	p.meter.coded = true
}

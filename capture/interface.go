package capture

import (
	"fmt"
	"strings"
)

// Options of an interface description block that matter here.
const (
	optEnd         = 0
	optName        = 2
	optDescription = 3
	optResolution  = 9
	optOffset      = 14

	interfaceHeader = 16
	// microsecondTicks is the if_tsresol of an interface that names none.
	microsecondTicks = 6
	// maxText bounds what is kept of a name or description, in bytes, so that
	// the most interfaces allowed still take a few tens of MiB at most.
	maxText = 256
)

// iface reads an interface description block.
func (s *blocks) iface(p []byte) *failure {
	if len(s.interfaces) >= s.opts.MaxInterfaces {
		return &failure{
			what: "number of interfaces", size: int64(len(s.interfaces)) + 1,
			max: int64(s.opts.MaxInterfaces), option: "Options.MaxInterfaces",
		}
	}
	in := Interface{Link: LinkType(s.u16(p[8:])), SnapLen: s.u32(p[12:])}
	resol := byte(microsecondTicks)
	for o := p[interfaceHeader : len(p)-blockTrailer]; len(o) >= 4; {
		code, size := s.u16(o), int(s.u16(o[2:]))
		if code == optEnd {
			break
		}
		padded := (size + 3) &^ 3
		if padded > len(o)-4 {
			return malformed(fmt.Sprintf("option %d of an interface is %d bytes long, its block has %d left", code, size, len(o)-4))
		}
		if bad := s.ifaceOption(&in, &resol, code, o[4:4+size]); bad != "" {
			return malformed(bad)
		}
		o = o[4+padded:]
	}
	c := newClock(resol, in.OffsetSeconds)
	in.NanosPerTick = c.nanosPerTick()
	s.interfaces = append(s.interfaces, in)
	s.clocks = append(s.clocks, c)
	return nil
}

// ifaceOption stores one option. Wrong times are worse than none, so a
// malformed one that times depend on is an error.
func (s *blocks) ifaceOption(in *Interface, resol *byte, code uint16, v []byte) string {
	switch code {
	case optName:
		in.Name = text(v)
	case optDescription:
		in.Description = text(v)
	case optResolution:
		if len(v) != 1 {
			return fmt.Sprintf("if_tsresol of an interface is %d bytes long, expected 1", len(v))
		}
		*resol = v[0]
	case optOffset:
		if len(v) != 8 {
			return fmt.Sprintf("if_tsoffset of an interface is %d bytes long, expected 8", len(v))
		}
		hi, lo := s.u32(v), s.u32(v[4:])
		if !s.swapped {
			hi, lo = lo, hi
		}
		in.OffsetSeconds = int64(uint64(hi)<<32 | uint64(lo))
	}
	return ""
}

// text copies an option's string out of the read buffer, bounded and valid
// UTF-8 so that it can be printed. Some writers end it with a zero byte.
func text(v []byte) string {
	t := string(v[:min(len(v), maxText)])
	if i := strings.IndexByte(t, 0); i >= 0 {
		t = t[:i]
	}
	return strings.ToValidUTF8(t, "")
}

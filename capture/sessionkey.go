package capture

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// SessionKey tells mirror sessions apart: each is a tap of its own, which stands where
// its switch mirrors.
type SessionKey struct {
	Kind   MirrorKind
	Source netip.Addr // the switch
	ID     uint64     // see Session
}

// Key is what the session is known by.
func (s *Session) Key() SessionKey { return SessionKey{s.Kind, s.Source, s.ID} }

// String is the key as kind/address/session, such as erspan/192.0.2.1/77. The session of
// TZSP is the sensor, such as 02:00:00:00:00:01.
func (k SessionKey) String() string {
	return fmt.Sprintf("%s/%s/%s", k.Kind, k.Source, SessionIDText(k.Kind, k.ID))
}

// SessionIDText is how the id of a session is written.
func SessionIDText(kind MirrorKind, id uint64) string {
	if kind != MirrorTZSP || id == 0 {
		return strconv.FormatUint(id, 10)
	}
	b := binary.BigEndian.AppendUint64(nil, id)
	return net.HardwareAddr(b[2:]).String()
}

// ParseSessionID reads the id of a session as it is written.
func ParseSessionID(kind MirrorKind, text string) (uint64, error) {
	most, what := uint64(1<<32-1), "a number of at most 4294967295"
	switch kind {
	case MirrorERSPAN:
		most, what = 1<<10-1, "a session of 0 to 1023"
	case MirrorVXLAN:
		most, what = 1<<24-1, "a network of 0 to 16777215"
	case MirrorTZSP:
		most, what = 0, "a sensor such as 02:00:00:00:00:01, or 0 for none"
		if mac, err := net.ParseMAC(text); err == nil && len(mac) == 6 {
			return binary.BigEndian.Uint64(append([]byte{0, 0}, mac...)), nil
		}
	}
	if id, err := strconv.ParseUint(text, 10, 64); err == nil && id <= most {
		return id, nil
	}
	return 0, fmt.Errorf("session %q of %s: expected %s", text, kind, what)
}

// ParseSessionKey reads what SessionKey.String writes.
func ParseSessionKey(text string) (k SessionKey, err error) {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return k, fmt.Errorf("session %q: expected KIND/ADDRESS/SESSION", text)
	}
	if k.Kind, err = ParseMirrorKind(parts[0]); err != nil {
		return k, err
	}
	if k.Source, err = netip.ParseAddr(parts[1]); err != nil {
		return k, fmt.Errorf("session %q: %w", text, err)
	}
	k.ID, err = ParseSessionID(k.Kind, parts[2])
	return k, err
}

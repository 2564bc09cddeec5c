package csig

import "fmt"

// Format is the size class of a tag (section 4.1): compact tags carry 16 bits
// of data after the TPID, wide tags (the draft says expanded) carry 48.
type Format uint8

// The two formats. The zero Format is none.
const (
	Compact Format = 1
	Wide    Format = 2
)

// DataLen returns the number of bytes of data fields: 2 for compact, 6 for wide.
func (f Format) DataLen() int {
	switch f {
	case Compact:
		return 2
	case Wide:
		return 6
	}
	return 0
}

// String returns the name used in configuration and output: "compact" or "wide".
func (f Format) String() string {
	switch f {
	case Compact:
		return "compact"
	case Wide:
		return "wide"
	}
	return fmt.Sprintf("format_%d", uint8(f))
}

// ParseFormat reads a Format's name.
func ParseFormat(s string) (Format, error) {
	switch s {
	case "compact":
		return Compact, nil
	case "wide", "expanded":
		return Wide, nil
	}
	return 0, fmt.Errorf("parse format %q: expected compact or wide", s)
}

// Profile names the document whose field layout a tag follows.
type Profile uint8

// The two public profiles. The zero Profile is none.
const (
	// IETF01 is draft-ravi-ippm-csig-01, section 4.1.
	IETF01 Profile = 1
	// UEC050 is the layout with the trim bit D, as shown to IEEE 802.1 in
	// January 2026 ("Two L2 Tags") and to IETF 124 ("Wire Format").
	UEC050 Profile = 2
)

// String returns the name used in configuration and output: "ietf01" or "uec050".
func (p Profile) String() string {
	switch p {
	case IETF01:
		return "ietf01"
	case UEC050:
		return "uec050"
	}
	return fmt.Sprintf("profile_%d", uint8(p))
}

// ParseProfile reads a Profile's name.
func ParseProfile(s string) (Profile, error) {
	switch s {
	case "ietf01":
		return IETF01, nil
	case "uec050":
		return UEC050, nil
	}
	return 0, fmt.Errorf("parse profile %q: expected ietf01 or uec050", s)
}

// Layout is the meaning of a TPID: a format in a profile.
type Layout struct {
	Format  Format
	Profile Profile
}

// NumLayouts bounds Layout.Index.
const NumLayouts = 4

// Index returns a dense number in [0, NumLayouts) for table look-ups. The layout must be one of the
// four that ParseFormat and ParseProfile can name.
func (l Layout) Index() int {
	return 2*int(l.Format) + int(l.Profile) - 3
}

// LayoutAt returns the layout with that Index, in [0, NumLayouts).
func LayoutAt(i int) Layout {
	return Layout{Format: Format(i>>1&1) + 1, Profile: Profile(i&1) + 1}
}

// Types returns the number of signal types the format's T field can name: 8 for compact (3 bits),
// 16 for wide (4 bits), section 4.1.3.
func (l Layout) Types() int {
	if l.Format == Wide {
		return 16
	}
	return 8
}

// LMBits returns the width of the locator metadata: 7 and 16 bits in ietf01, 6 and 15 in uec050,
// which gives one bit to D.
func (l Layout) LMBits() int {
	bits := 7
	if l.Format == Wide {
		bits = 16
	}
	if l.Profile == UEC050 {
		bits--
	}
	return bits
}

// MaxS returns the largest value of the signal field: 31 for compact, 2^20-1 for wide.
func (l Layout) MaxS() uint32 {
	if l.Format == Wide {
		return 1<<20 - 1
	}
	return 31
}

// String returns "format/profile", for example "compact/ietf01".
func (l Layout) String() string { return l.Format.String() + "/" + l.Profile.String() }

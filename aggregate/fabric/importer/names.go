package importer

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"unicode"
)

// maxName is the maximum length of the name of a node or port, in bytes: that of fabric files.
const maxName = 128

// cleanName returns a name as fabric files accept it: printable, with "-" in place of the
// characters that would make names of ports and sets ambiguous. It returns "" for a name that
// cannot be kept.
func cleanName(name, forbidden string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune(forbidden, r):
			return '-'
		case r == unicode.ReplacementChar || !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.TrimSpace(name))
	if len(name) > maxName {
		return ""
	}
	return name
}

// Characters that fabric files refuse in names.
const (
	notInNames     = " ,:()"
	notInPortNames = " ,()"
)

func cleanNode(name string) string { return cleanName(name, notInNames) }
func cleanPort(name string) string { return cleanName(name, notInPortNames) }

// shortName returns a name without its domain: leaf1 for leaf1.dc1.example.com. Addresses have
// none.
func shortName(name string) string {
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	short, _, _ := strings.Cut(name, ".")
	return cmp.Or(short, name)
}

// ethernetWords are the first words of vendors' Ethernet port names, with the speed in kbit/s that
// the word implies; 0: none.
var ethernetWords = map[string]uint64{
	"e": 0, "et": 0, "eth": 0, "ethernet": 0, "eth-trunk": 0,
	"fa": 100e3, "fastethernet": 100e3,
	"ge": 1e6, "gi": 1e6, "gige": 1e6, "gigabitethernet": 1e6,
	"xe": 10e6, "te": 10e6, "tengige": 10e6, "tengigabitethernet": 10e6, "xgigabitethernet": 10e6,
	"twe": 25e6, "tf": 25e6, "twentyfivegige": 25e6, "25ge": 25e6,
	"fo": 40e6, "fortygige": 40e6, "fortygigabitethernet": 40e6,
	"fi": 50e6, "fiftygige": 50e6,
	"hu": 100e6, "hundredgige": 100e6, "hundredgigabitethernet": 100e6, "100ge": 100e6,
	"twohundredgige": 200e6, "fh": 400e6, "fourhundredgige": 400e6, "400ge": 400e6, "eighthundredgige": 800e6,
}

// splitPort divides a port's name into its word in lower case, and its numbers.
func splitPort(name string) (word string, numbers []string) {
	name = strings.ToLower(name)
	// 100GE1/0/1: the word begins with its speed.
	head := 0
	for head < len(name) && isDigit(name[head]) {
		head++
	}
	if head > 0 && !strings.HasPrefix(name[head:], "ge") {
		head = 0
	}
	at := head + strings.IndexFunc(name[head:], unicode.IsDigit)
	if at < head {
		return name, nil
	}
	word = strings.TrimRight(name[:at], "-_ ")
	numbers = strings.FieldsFunc(name[at:], func(r rune) bool { return !unicode.IsDigit(r) })
	return word, numbers
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// portKey returns the same key for the names of one port in several systems: Ethernet1/1, Eth1/1,
// et-1/1 and e1-1. It returns "" for names without a number. Two ports of a device may have the
// same key (et-0/0/0 and ge-0/0/0 are two ports where line cards have both), so it joins names only
// if one port alone has it.
func portKey(name string) string {
	word, numbers := splitPort(name)
	if len(numbers) == 0 {
		return ""
	}
	if _, ok := ethernetWords[word]; ok {
		word = "ethernet"
	}
	return word + " " + strings.Join(numbers, "/")
}

// speedOfName returns the speed in kbit/s in a name such as HundredGigE0/0/0/1; 0: none.
func speedOfName(name string) uint64 {
	word, _ := splitPort(name)
	if len(word) < 5 { // et-, xe- and ge- ports accept other optics, and Te is short for several words
		return 0
	}
	return ethernetWords[word]
}

// isManagement reports whether a port of a switch belongs to the management network.
func isManagement(name string) bool {
	name = strings.ToLower(name)
	prefixes := []string{"mgmt", "management", "oob", "ipmi", "bmc", "ilo", "idrac", "fxp", "me0", "em0", "em1", "ma1", "ma0", "console", "docker", "usb"}
	return name == "eth0" || name == "lo" || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// looksLikeSwitchPort reports whether a name is a front panel port's, and not a network card's.
func looksLikeSwitchPort(name string) bool {
	word, numbers := splitPort(name)
	if len(numbers) == 0 {
		return false
	}
	switch word {
	case "eth", "e", "":
		return len(numbers) > 1
	case "swp":
		return true
	}
	_, ok := ethernetWords[word]
	return ok
}

// looksLikeCard reports whether a name is one that Linux gives to network cards.
func looksLikeCard(name string) bool {
	word, numbers := splitPort(name)
	switch word {
	case "eth":
		return len(numbers) == 1
	case "ens", "eno", "enp", "enx", "ib", "ibs", "ibp", "bond", "nic", "hca", "mlx":
		return true
	}
	return isManagement(name)
}

// nodeKind says whether a node is part of the fabric.
type nodeKind uint8

const (
	unknownKind nodeKind = iota
	switchKind
	hostKind
	otherKind // management switches, patch panels, firewalls: no part of the fabric
)

// roleWord is a word for the position of a switch, with its height above the hosts.
type roleWord struct {
	word, stage string
	height      int
}

// roleWords are the words of roles and names, each behind the longer ones that contain it. Only the order of the heights
// counts: a fabric of leaf and spine has no others.
var roleWords = []roleWord{
	{"superspine", "superspine", 40},
	{"spine", "spine", 30},
	{"leaf", "leaf", 10},
	{"core", "core", 45},
	{"aggregation", "agg", 20},
	{"distribution", "agg", 20},
	{"agg", "agg", 20},
	{"access", "tor", 0},
	{"tor", "tor", 0},
	{"edge", "tor", 0},
	{"rsw", "tor", 0},
	{"fsw", "agg", 20},
	{"ssw", "spine", 30},
	{"t0", "tor", 0},
	{"t1", "agg", 20},
	{"t2", "spine", 30},
}

// Words in the roles and names of nodes that are no switches of the fabric.
var (
	hostWords  = []string{"server", "host", "compute", "hypervisor", "gpu", "srv", "client", "worker", "storage", "workstation", "vm", "dgx", "hgx"}
	otherWords = []string{"mgmt", "management", "oob", "console", "pdu", "patch", "panel", "firewall", "fw", "mgmttorrouter"}
)

// roleOfText finds the word for a position in a role or a name, and the kind of node. One of
// otherWords counts wherever it is, else the last word: leaf1-host2 is a host.
func roleOfText(text string) (stage string, height int, kind nodeKind) {
	words := wordsOf(text)
	for _, w := range words {
		if slices.ContainsFunc(otherWords, func(sought string) bool { return matches(w, sought) }) {
			return "", 0, otherKind
		}
	}
	for n := len(words) - 1; n >= 0; n-- {
		w := words[n]
		if w == "spine" && n > 0 && words[n-1] == "super" {
			w = "superspine"
		}
		for _, r := range roleWords {
			if matches(w, r.word) {
				return r.stage, r.height, switchKind
			}
		}
		if slices.ContainsFunc(hostWords, func(sought string) bool { return matches(w, sought) }) {
			return "", 0, hostKind
		}
	}
	return "", 0, unknownKind
}

// matches reports whether a word is sought, or begins or ends with it if it is long enough not to
// be part of other words: a motor is no tor.
func matches(word, sought string) bool {
	return word == sought || len(sought) > 3 && (strings.HasPrefix(word, sought) || strings.HasSuffix(word, sought))
}

// wordsOf splits a name at everything but letters: dc1-pod2-leaf03a is dc, pod, leaf, a. The tiers
// T0 to T2 are separate words, also at the end of ARISTA01T1.
func wordsOf(text string) []string {
	lower := strings.ToLower(text)
	var words []string
	for _, tier := range []string{"t0", "t1", "t2"} {
		at := strings.Index(lower, tier)
		if at >= 0 && (at == 0 || !unicode.IsLetter(rune(lower[at-1]))) && (at+2 == len(lower) || !isDigit(lower[at+2])) {
			words = append(words, tier)
		}
	}
	return append(words, strings.FieldsFunc(lower, func(r rune) bool { return !unicode.IsLetter(r) })...)
}

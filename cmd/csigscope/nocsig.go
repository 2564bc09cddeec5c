package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/csigscope/csigscope/decode/csig"
)

// noteNoCSIG says what to look at where packets were read and none of them carried CSIG:
// nothing on the wire tells a tag of another TPID from any other protocol.
func noteNoCSIG(w io.Writer, packets, observations uint64, d *csig.Domain) {
	if packets == 0 || observations > 0 {
		return
	}
	fmt.Fprintf(w, "note: none of the packets has a CSIG tag or reflection. Tags are known by their TPID, here %s: others go\n"+
		"into csig: tpids of a file for --config (csigscope config dump prints one). A capture at senders, or behind a\n"+
		"switch or a network card that strips tags, has none.\n", tpidList(d))
}

// tpidList names the TPIDs that tags are looked for under.
func tpidList(d *csig.Domain) string {
	var tpids []string
	for _, id := range d.TPIDs() {
		tpids = append(tpids, fmt.Sprintf("%#04x", id))
	}
	return strings.Join(tpids, ", ")
}

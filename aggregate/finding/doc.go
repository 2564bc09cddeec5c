// Package finding tells what breaks the protocol or contradicts the configuration, as the
// observations of taps show it, one by one: forged values, tags of senders that may not
// send any, locator metadata that nobody writes, ports that are stuck.
//
// It knows observations, the place of a tap, and which port a locator means. It must never
// know where frames come from, time windows, or where findings go. What only a pair of
// captures can tell, package decode/conform does.
//
// # What is found
//
//	unauthorised-sender  a tag from a source that is not among the senders        section 9
//	forged-value         a value that no port wrote: at a sender, one that is     section 9, IBCS 4.1
//	                     not initial; elsewhere, with locator metadata that no
//	                     port of the path writes, of a source that stands out
//	leak                 a tag outside of the domain                              section 6.3.2
//	unknown-locator      the same of sources that do not stand out                section 5.5.1
//	locator-alone        locator metadata beside a value that no hop replaced     section 4.1.3
//	above-capacity       more available bandwidth than the port has               section 5.1
//	reserved-bits        reserved bits that are not 0                             section 4.1
//	orphan-tag           a tag in a place where none belongs                      section 4.1
//	stuck-port           a port that wrote one heavily loaded value, exactly,     section 5.1.1
//	                     for long
//	wrong-profile        fields that make sense in the other profile alone        section 4.1
//
// # What is not
//
// A tag that is initial everywhere, trimmed, stripped or not updated is no finding:
// networks may be idle, hops may fail open or pass tags through, ports may strip.
package finding

// Package fabric resolves addresses to groups and locator metadata to ports: the topology with its
// groups, devices, ports and hosts, the shortest paths between hosts, and the ports that a value of
// locator metadata can stand for on such a path.
//
// It knows addresses and locator metadata. It must never know traffic: how often or how much was
// sent, or the measured values.
//
// Locator metadata is compressed (draft-ravi-ippm-csig-01, section 5.5): "a leaf,
// upward, 100 Gbit/s" fits many ports. A location is therefore a set of ports,
// the smallest one that the metadata and the path from source to destination
// allow, and a single port only when they force one.
//
// A new fabric compiles the possible values of locator metadata into classes of ports. For a class
// of one port, three distances between devices decide whether a path has it. For larger classes,
// the paths are searched once for each pair of attachments (sets of devices), and the result is
// kept in a cache of fixed size. Locations are bounded, too: past maxSets a set becomes its stage,
// past maxOffPath a contradiction becomes the overflow location, past maxDistances paths count as
// unknown. Counts reports how often.
package fabric

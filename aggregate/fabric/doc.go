// Package fabric knows the topology: groups of addresses, devices, ports and
// hosts, the shortest paths between hosts, and which ports a value of locator
// metadata can stand for on such a path.
//
// It must never know traffic: it is asked about addresses and locator metadata,
// and never told how often, how much, or what was measured.
//
// Locator metadata is compressed (draft-ravi-ippm-csig-01, section 5.5): "a leaf,
// upward, 100 Gbit/s" fits many ports. A location is therefore a set of ports,
// the smallest one that the metadata and the path from source to destination
// allow, and a single port only when they force one.
//
// What locator metadata can say is compiled into classes of ports when a fabric is
// made. A class of one port is held against a path by three distances between
// devices; what paths have of larger classes is searched once for each pair of
// attachments and kept in a cache of fixed size. Places, too, are bounded: past
// maxSets a set becomes its stage, past maxOffPath a contradiction becomes the
// overflow location, past maxDistances paths count as unknown. Counts has all three.
package fabric

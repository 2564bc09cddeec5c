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
package fabric

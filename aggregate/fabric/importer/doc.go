// Package importer makes fabric files from network descriptions that operators already have:
// SONiC's config_db.json, the neighbors printed by lldpctl, NetBox's devices, interfaces and
// cables, and containerlab topologies.
//
// It knows the shapes of those files and the names that vendors give to interfaces. It must never
// know flags, or traffic.
//
// Each file is parsed by itself into statements: nodes with their ports, and links. Then names are
// matched, statements about one device are merged, and contradictions between two files are
// reported with both. Stages, racks and pods follow from roles, names and the links. A person has
// to add only data that no file states.
//
// Input is hostile: files, their number, the nesting of their contents and the number of statements
// are bounded, and every pass over statements takes linear time.
package importer

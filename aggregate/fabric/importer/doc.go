// Package importer makes fabric files of descriptions of a network that operators have:
// SONiC's config_db.json, the neighbours that lldpctl prints, NetBox's devices, interfaces
// and cables, and containerlab topologies.
//
// It knows the shapes of those files and the names that vendors give to interfaces. It must
// never know flags, or traffic.
//
// Each file is parsed by itself into statements: nodes with their ports, and links. Then
// names are matched, statements about one device are merged, and what two files state
// differently is reported with both. Stages, racks and pods follow from roles, names and the
// links; a reader of the result is asked only for what no file states.
//
// Input is hostile: files, their number, the nesting of their contents and the number of
// statements are bounded, and every pass over statements takes time in proportion to them.
package importer

package finding

import "fmt"

// Findings are what was found, errors first. Observe may be called again after it.
func (d *Detector) Findings() []Finding {
	var list []Finding
	for k := range d.cases {
		for _, f := range d.cases[k] {
			if one, ok := d.explained(*f); ok {
				list = append(list, one)
			}
		}
	}
	list = append(list, d.strays.forgers()...)
	list = append(list, d.stuck()...)
	list = append(list, d.locatorsAlone()...)
	list = append(list, d.wrongProfiles()...)
	order(list)
	return list
}

// explained says what a finding is one of, and what shows it; ok is false for one that
// another explains.
func (d *Detector) explained(f Finding) (_ Finding, ok bool) {
	for i := range d.layouts {
		f.Of += d.layouts[i].n
	}
	switch f.Kind {
	case UnauthorisedSender:
		f.Evidence = fmt.Sprintf("%s sends tags and is not among the senders", f.Subject)
	case ForgedValue:
		f.Evidence = fmt.Sprintf("%s sends tags whose value is not the initial one", f.Subject)
	case Leak:
		f.Evidence = fmt.Sprintf("tags arrive at %s, outside of the domain", f.Subject)
	case OrphanTag:
		f.Evidence = fmt.Sprintf("packets of %s have tags before other tags, or inside of tunnels", f.Subject)
	case ReservedBits:
		f.Evidence = fmt.Sprintf("reserved bits of %s are set", f.Subject)
	case AboveCapacity:
		f.Evidence = fmt.Sprintf("values name %s and are more than it can carry", f.Subject)
	case UnknownLocator:
		return d.strays.left(f)
	}
	return f, true
}

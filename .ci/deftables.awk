# Turns tables of Markdown into definition lists, since in a manual page tables are wider than a
# terminal: the first column is the term, followed by defaults and kinds of values; the other
# columns are its definition.
function cells(line, list,   n, i) {
	gsub(/\\\|/, "\001", line)
	n = split(substr(line, 2, length(line) - 2), list, "|")
	for (i = 1; i <= n; i++) {
		gsub(/^ +| +$/, "", list[i])
		gsub("\001", "|", list[i])
	}
	return n
}
!/^\|/ { table = 0; print; next }
!table { table = 1; cells($0, head); next }
/^\|---/ { next }
{
	n = cells($0, cell)
	about = text = ""
	for (i = 2; i <= n; i++) {
		if (cell[i] == "") continue
		if (head[i] == "value") about = about ", " cell[i]
		else if (head[i] == "default") about = about ", default " cell[i]
		else if (head[i] == "meaning") text = text cell[i]
		else text = text (text == "" ? "" : "; ") head[i] ": " cell[i]
	}
	printf "%s%s\n: %s\n\n", cell[1], about == "" ? "" : " (" substr(about, 3) ")", text
}

package store

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Access is the set of rights of a server's user.
type Access string

// Rights of users, within the database only. A reader can query, as Grafana needs; a writer can
// also store rows; an owner can also migrate and drop.
const (
	AccessReader Access = "reader"
	AccessWriter Access = "writer"
	AccessOwner  Access = "owner"
)

// privileges are the SQL privileges of an access.
func (a Access) privileges() (string, error) {
	switch a {
	case AccessReader:
		return "SELECT", nil
	case AccessWriter:
		return "SELECT, INSERT", nil
	case AccessOwner:
		return "SELECT, INSERT, CREATE DATABASE, CREATE TABLE, CREATE VIEW, DROP DATABASE, DROP TABLE, DROP VIEW, ALTER TABLE, ALTER VIEW, OPTIMIZE", nil
	}
	return "", fmt.Errorf("access %q: expected %s, %s or %s", a, AccessReader, AccessWriter, AccessOwner)
}

// Grants describes a user of a server.
type Grants struct {
	Database string // empty: DefaultDatabase
	User     string
	Access   Access // empty: AccessReader
	Cluster  bool   // the statements are run on every server of a cluster

	// Password is stored as a hash, with Salt of random bytes. Without a password the user must
	// exist.
	Password string
	Salt     []byte

	Limits         Limits // of each query of a reader; unset fields as for Options
	QueriesPerHour uint64 // of a reader, 36,000 unless set
}

// saltBytes is the length of the salt of a password's hash.
const saltBytes = 16

// SetPassword sets the password of a new user, and a random salt.
func (g *Grants) SetPassword(password string) {
	g.Password, g.Salt = password, make([]byte, saltBytes)
	_, _ = rand.Read(g.Salt) // never fails
}

// maxUserName bounds the name of a user.
const maxUserName = 128

// userName accepts names that need no escaping in back quotes.
func userName(name string) error {
	if name == "" || len(name) > maxUserName || strings.ContainsFunc(name, func(r rune) bool {
		return r == '`' || r == '\\' || r < ' ' || r == 0x7f || r == 0xfffd
	}) {
		return fmt.Errorf("user %q: expected a name of at most %d bytes without quotes and control characters", name, maxUserName)
	}
	return nil
}

// Statements returns the statements for an administrator to create the user with its role, and
// for readers a settings profile and a quota. Running them again only sets the limits again. They
// contain the password only as a salted hash.
func (g Grants) Statements() ([]string, error) {
	database := cmp.Or(g.Database, DefaultDatabase)
	if !databaseName.MatchString(database) {
		return nil, fmt.Errorf("name database %q: expected letters, digits and _, at most 64", database)
	}
	if err := userName(g.User); err != nil {
		return nil, err
	}
	access := cmp.Or(g.Access, AccessReader)
	privileges, err := access.privileges()
	if err != nil {
		return nil, err
	}
	role := fmt.Sprintf("`%s_%s`", database, access)
	if role == "`"+g.User+"`" {
		return nil, fmt.Errorf("user %q: expected a name other than its role, which a server would take for the user", g.User)
	}
	statements := []string{
		"CREATE ROLE IF NOT EXISTS " + role,
		fmt.Sprintf("GRANT %s ON %s.* TO %s", privileges, database, role),
	}
	if access == AccessReader {
		statements = append(statements, g.profile(role), "ALTER ROLE "+role+" SETTINGS PROFILE "+role)
	} else {
		// For the queries of migrations and verify about the database's own tables.
		statements = append(statements, "GRANT SELECT ON system.parts TO "+role)
	}
	if g.Cluster {
		// Commands look up the cluster's servers there.
		statements = append(statements, "GRANT SELECT ON system.clusters TO "+role)
		if access == AccessOwner { // creates distributed tables
			statements = append(statements, "GRANT REMOTE ON *.* TO "+role)
		}
	}
	user, err := g.user()
	if err != nil {
		return nil, err
	}
	statements = append(statements, user...)
	statements = append(statements,
		fmt.Sprintf("GRANT %s TO `%s`", role, g.User),
		fmt.Sprintf("ALTER USER `%s` DEFAULT ROLE %s", g.User, role))
	if access == AccessReader {
		statements = append(statements, g.quota(role))
	}
	return statements, nil
}

// profile bounds the cost of a reader's queries. readonly = 2 lets clients, as Grafana's does,
// change settings within the constraints; the minimum is 1, since 0 means no limit.
func (g Grants) profile(role string) string {
	settings := []string{"readonly = 2", "allow_ddl = 0 CONST", "allow_introspection_functions = 0 CONST"}
	limits := g.Limits.withDefaults().settings()
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		settings = append(settings, fmt.Sprintf("%s = %d MIN 1 MAX %[2]d", name, limits[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(overflow)) {
		settings = append(settings, overflow[name]+" = 'throw' CONST")
	}
	return "CREATE SETTINGS PROFILE OR REPLACE " + role + " SETTINGS\n    " + strings.Join(settings, ",\n    ")
}

// quota bounds the cost of all queries of a user in an hour, at a hundred of the most expensive
// ones.
func (g Grants) quota(role string) string {
	limits := g.Limits.withDefaults()
	readRows := min(limits.ReadRows, math.MaxUint64/100)
	return fmt.Sprintf("CREATE QUOTA OR REPLACE %s KEYED BY user_name\n    FOR INTERVAL 1 hour MAX queries = %d, read_rows = %d, execution_time = %d\n    TO %[1]s",
		role, cmp.Or(g.QueriesPerHour, 36_000), 100*readRows, 100*limits.settings()[settingTime])
}

func (g Grants) user() ([]string, error) {
	if g.Password == "" {
		return nil, nil
	}
	if len(g.Salt) < 16 {
		return nil, errors.New("hash password: expected a salt of at least 16 bytes")
	}
	salt := fmt.Sprintf("%X", g.Salt)
	hash := sha256.Sum256([]byte(g.Password + salt))
	return []string{fmt.Sprintf("CREATE USER IF NOT EXISTS `%s` IDENTIFIED WITH sha256_hash BY '%X' SALT '%s'", g.User, hash, salt)}, nil
}

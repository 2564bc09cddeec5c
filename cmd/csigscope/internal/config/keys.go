package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// setter is a value that can be set from a text.
type setter interface{ Set(string) error }

// own reports whether a type is a section of this package, with keys of its own.
func own(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.PkgPath() == reflect.TypeFor[Config]().PkgPath() && !reflect.PointerTo(t).Implements(reflect.TypeFor[setter]())
}

// walk visits the keys of a section and its subsections, with their path from the top of the
// file: list elements are "taps[0]", map keys are path elements. With example, an empty list
// has one element "taps[]", and an empty map one "{}".
func walk(path []string, section reflect.Value, example bool, visit func(path []string, f reflect.StructField, v reflect.Value)) {
	for f, v := range section.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if strings.Contains(options, "inline") {
			walk(path, v, example, visit)
			continue
		}
		at := append(slices.Clip(path), name)
		visit(at, f, v)
		switch t := v.Type(); {
		case own(t):
			walk(at, v, example, visit)
		case t.Kind() == reflect.Slice && own(t.Elem()):
			for i := range v.Len() {
				walk(append(slices.Clip(path), fmt.Sprintf("%s[%d]", name, i)), v.Index(i), example, visit)
			}
			if example && v.Len() == 0 {
				walk(append(slices.Clip(path), name+"[]"), reflect.Zero(t.Elem()), example, visit)
			}
		case t.Kind() == reflect.Map && own(t.Elem()):
			for _, key := range slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) }) {
				walk(append(slices.Clip(at), key.String()), v.MapIndex(key), example, visit)
			}
			if example && v.Len() == 0 {
				walk(append(slices.Clip(path), name+"{}"), reflect.Zero(t.Elem()), example, visit)
			}
		}
	}
}

// outOfRange returns an error for each value outside the range of its key.
func outOfRange(section reflect.Value) (wrong []error) {
	walk(nil, section, false, func(path []string, f reflect.StructField, v reflect.Value) {
		if err := checkRange(f, v); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %s: %w", strings.Join(path, ": "), text(v), err))
		}
	})
	return wrong
}

// checkRange checks a value against the range tag of its field. A missing value passes.
func checkRange(f reflect.StructField, v reflect.Value) error {
	low, high, ok := strings.Cut(f.Tag.Get("range"), "..")
	if !ok || v.IsZero() && strings.Contains(f.Tag.Get("yaml"), "omitempty") {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if low != "" && number(v) < number(parsed(v.Type(), low)) || high != "" && number(v) > number(parsed(v.Type(), high)) {
		return errors.New("expected " + rangeText(f))
	}
	return nil
}

// rangeText returns the range tag in words.
func rangeText(f reflect.StructField) string {
	low, high, _ := strings.Cut(f.Tag.Get("range"), "..")
	switch {
	case high == "" && low != "":
		return "at least " + low
	case low == "" && high != "":
		return "at most " + high
	case low != "":
		return low + " to " + high
	}
	return ""
}

// parsed returns the value of a text in a tag.
func parsed(t reflect.Type, text string) reflect.Value {
	v := reflect.New(t).Elem()
	if err := set(v, text); err != nil {
		panic(fmt.Sprintf("tag range: %q: %v", text, err)) // a bug in this package
	}
	return v
}

// number returns a value with a range as a float.
func number(v reflect.Value) float64 {
	if v.CanUint() {
		return float64(v.Uint())
	}
	return float64(v.Int())
}

// set sets the value of a key from a text on the command line.
func set(v reflect.Value, text string) error {
	if s, ok := v.Addr().Interface().(setter); ok {
		return s.Set(text)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Slice:
		v.Set(reflect.AppendSlice(v, reflect.ValueOf(strings.Split(text, ","))))
	default:
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		v.SetInt(int64(n))
	}
	return nil
}

// text returns the value of a key as errors, the reference and the help of flags print it.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Pointer, v.Kind() == reflect.Map && v.Len() == 0, v.Kind() == reflect.Slice && v.Len() == 0, own(v.Type()):
		return ""
	case v.Kind() == reflect.Uint64 && v.Uint() == 0:
		return ""
	}
	return strings.Trim(fmt.Sprint(v), "[] ")
}

// override is a flag that overrides a key of the file.
type override struct {
	field reflect.StructField
	path  []string
	value reflect.Value
	given bool
}

// Flag adds a flag that overrides a key of the file such as store.outbox.size, with the key's
// default, range and meaning. Config.Override applies the flags that were given.
func Flag(flags *pflag.FlagSet, name, key string) {
	c := Default()
	o := &override{}
	walk(nil, reflect.ValueOf(&c).Elem(), false, func(path []string, f reflect.StructField, v reflect.Value) {
		if strings.Join(path, ".") == key {
			o.field, o.path, o.value = f, path, v
		}
	})
	if o.path == nil {
		panic("flag for the unknown key " + key) // a bug in the program
	}
	usage := o.field.Tag.Get("help")
	if fallback := o.field.Tag.Get("default"); fallback != "" {
		usage += " (default " + fallback + ")"
	}
	flags.Var(o, name, usage)
}

// Set implements pflag.Value. An empty text keeps the file's value.
func (o *override) Set(text string) error {
	if text == "" {
		return nil
	}
	if !o.given && o.value.Kind() == reflect.Slice {
		o.value.SetZero()
	}
	o.given = true
	if err := set(o.value, text); err != nil {
		return err
	}
	return checkRange(o.field, o.value)
}

// String implements pflag.Value.
func (o *override) String() string {
	if o.path == nil { // pflag calls it on the zero value
		return ""
	}
	return text(o.value)
}

// Type implements pflag.Value: a placeholder, or the words to choose from.
func (o *override) Type() string {
	name := kind(o.field)
	if words := strings.ReplaceAll(name, ", ", "|"); words != name {
		return words
	}
	return strings.ToUpper(name)
}

// Override sets the keys whose flags were given.
func (c *Config) Override(flags *pflag.FlagSet) {
	given := make(map[string]reflect.Value)
	flags.VisitAll(func(f *pflag.Flag) {
		if o, ok := f.Value.(*override); ok && o.given {
			given[strings.Join(o.path, ".")] = o.value
		}
	})
	walk(nil, reflect.ValueOf(c).Elem(), false, func(path []string, _ reflect.StructField, v reflect.Value) {
		if value, ok := given[strings.Join(path, ".")]; ok {
			v.Set(value)
		}
	})
}

// kind returns the type of a key's values in words.
func kind(f reflect.StructField) string {
	if unit := f.Tag.Get("unit"); unit != "" {
		return unit
	}
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if v, ok := reflect.New(t).Interface().(pflag.Value); ok {
		return v.Type()
	}
	switch {
	case t.Kind() == reflect.Struct:
		return "keys"
	case t.Kind() == reflect.Slice:
		return "list"
	case t.Kind() == reflect.Map:
		return "mapping"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int, t.Kind() == reflect.Float64:
		return "number"
	}
	return "text"
}

// WriteReference writes a table of all keys except those of the section csig, which have their
// own tables.
func WriteReference(w io.Writer) error {
	c := Default()
	if _, err := fmt.Fprint(w, "| key | value | default | meaning |\n|---|---|---|---|\n"); err != nil {
		return err
	}
	var failed error
	walk(nil, reflect.ValueOf(c), true, func(path []string, f reflect.StructField, v reflect.Value) {
		if f.Tag.Get("help") == "" || failed != nil {
			return
		}
		value := kind(f)
		if f.Type.Kind() == reflect.Slice && f.Tag.Get("unit") != "" {
			value = "list of " + value + "s"
		}
		if bounds := rangeText(f); bounds != "" {
			value += ", " + bounds
		}
		fallback := f.Tag.Get("default")
		if fallback == "" {
			fallback = text(v)
		}
		_, failed = fmt.Fprintf(w, "| `%s` | %s | %s | %s |\n", strings.Join(path, "."), value, fallback, strings.ReplaceAll(f.Tag.Get("help"), "|", "\\|"))
	})
	return failed
}

// Settings holds values by key, such as store.dsn.
type Settings map[string]string

// SettingsOf returns the settings in sections, which are given by name.
func SettingsOf(sections map[string]any) (Settings, error) {
	text, err := yaml.Marshal(sections)
	if err != nil {
		return nil, fmt.Errorf("write settings: %w", err)
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	s := make(Settings)
	s.add("", tree)
	return s, nil
}

func (s Settings) add(at string, value any) {
	below, ok := value.(map[string]any)
	if !ok {
		s[at] = fmt.Sprint(value)
		return
	}
	for key, v := range below {
		s.add(strings.TrimPrefix(at+"."+key, "."), v)
	}
}

// Differ returns the keys whose values differ between s and o, sorted.
func (s Settings) Differ(o Settings) []string {
	list := make(map[string]bool)
	for _, side := range [...]Settings{s, o} {
		for key := range side {
			if s[key] != o[key] {
				list[key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(list))
}

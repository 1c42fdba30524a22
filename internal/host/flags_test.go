package host

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/cluster"
)

// Each flag of the table is parsed into its setting, is compared with the stored
// one, and names a field of cluster.Options that exists and that it sets.
func TestFlagsSetCompareAndName(t *testing.T) {
	for i, f := range new(Settings).flags() {
		given := NewSettings()
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		given.BindFlags(fs)
		value := "a=b"
		switch {
		case f.num != nil:
			value = "7"
		case f.on != nil:
			value = "true"
		case f.off != nil:
			value = "false"
		}
		if err := fs.Parse([]string{"--" + f.name + "=" + value}); err != nil {
			t.Errorf("%s: %v", f.name, err)
			continue
		}
		if f.usage == "" || fs.Lookup(f.name).Usage != f.usage {
			t.Errorf("%s: the help says %q", f.name, fs.Lookup(f.name).Usage)
		}
		if f.field != "" && FlagOf(f.field) != f.name {
			t.Errorf("%s: field %s is that of flag %q", f.name, f.field, FlagOf(f.field))
		}
		if f.field != "" && !setsField(given, f.field) {
			t.Errorf("%s: it does not set field %s", f.name, f.field)
		}
		now, changes := NewSettings().With(given, []string{f.name})
		if f.selects {
			if len(changes) > 0 || len(now.SetFlags) > 0 {
				t.Errorf("%s: it selects the cluster and makes %v", f.name, changes)
			}
			continue
		}
		if got := now.flags()[i]; got.args == nil && got.value() != value {
			t.Errorf("%s: it is %q, want %q", f.name, got.value(), value)
		}
		if len(changes) != 1 || !strings.HasPrefix(changes[0].String(), "--"+f.name) || !slices.Equal(now.SetFlags, []string{f.name}) {
			t.Errorf("%s: it makes %v and %v", f.name, changes, now.SetFlags)
		}
	}
}

// setsField reports whether a field of the options has another value than
// without any flags.
func setsField(s Settings, path string) bool {
	is, was := reflect.ValueOf(s.Options), reflect.ValueOf(NewSettings().Options)
	for name := range strings.SplitSeq(path, ".") {
		is, was = reflect.Indirect(is).FieldByName(name), reflect.Indirect(was).FieldByName(name)
		if !is.IsValid() {
			return false
		}
	}
	return !reflect.DeepEqual(is.Interface(), was.Interface())
}

// An error in any field of cluster.Options that a flag can set wrongly names the
// flag.
func TestFieldsOfOptionsHaveFlags(t *testing.T) {
	without := []string{
		"Log", "Progress", "InProcess", "AdvertiseAddress", "NodePorts", // no flag sets them
		"Ports", "Etcd", "Node", "ControlPlane", // their fields have flags
	}
	for field := range reflect.TypeFor[cluster.Options]().Fields() {
		if flag := FlagOf(field.Name); (flag == "") != slices.Contains(without, field.Name) {
			t.Errorf("field %s has flag %q", field.Name, flag)
		}
	}
}

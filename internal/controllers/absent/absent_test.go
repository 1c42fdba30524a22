package absent

import (
	"testing"

	"github.com/coracle-io/coracle/internal/controller"
)

// The names of what is absent are accepted. "*" does not enable them.
func TestNamesAreAccepted(t *testing.T) {
	all := append(Descriptors(), controller.Descriptor{Name: "present"})
	for _, name := range []string{
		"resourcepoolstatusrequest-controller",
	} {
		for entry, want := range map[string]int{name: 2, "-" + name: 1} {
			if got, err := controller.Select(all, []string{"*", entry}); err != nil || len(got) != want {
				t.Errorf("--controllers=*,%s selects %d controllers, %v; want %d", entry, len(got), err, want)
			}
		}
	}
	if got, err := controller.Select(all, []string{"*"}); err != nil || len(got) != 1 || got[0].Name != "present" {
		t.Errorf("--controllers=* selects %v, %v", got, err)
	}
}

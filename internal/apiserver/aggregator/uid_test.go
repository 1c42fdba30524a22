package aggregator

import (
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// Servers get the UIDs of users unless they are left out.
func TestUIDs(t *testing.T) {
	for without, want := range map[bool]string{false: "7", true: ""} {
		s := &Server{Config: Config{WithoutUIDs: without}}
		if got := s.uidOf(&user.DefaultInfo{Name: "a", UID: "7"}); got != want {
			t.Errorf("without UIDs: %t, the UID is %q", without, got)
		}
	}
}

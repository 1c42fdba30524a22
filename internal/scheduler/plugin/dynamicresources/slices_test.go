package dynamicresources

import (
	"strings"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
)

// A rule taints the devices that all parts of its selector select, and the slice of the
// cache stays as it is.
func TestTaintsOfRules(t *testing.T) {
	type selector = resourceapi.DeviceTaintSelector
	rule := func(key string, s *selector) *resourceapi.DeviceTaintRule {
		return &resourceapi.DeviceTaintRule{Spec: resourceapi.DeviceTaintRuleSpec{
			DeviceSelector: s, Taint: resourceapi.DeviceTaint{Key: key, Effect: resourceapi.DeviceTaintEffectNoSchedule},
		}}
	}
	for name, test := range map[string]struct {
		rules []*resourceapi.DeviceTaintRule
		want  string // the taints of each device
	}{
		"no rules":         {nil, "a:own b:"},
		"no selector":      {[]*resourceapi.DeviceTaintRule{rule("x", nil)}, "a:own b:"},
		"all devices":      {[]*resourceapi.DeviceTaintRule{rule("x", &selector{})}, "a:own,x b:x"},
		"this driver":      {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Driver: new("d")})}, "a:own,x b:x"},
		"another driver":   {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Driver: new("e")})}, "a:own b:"},
		"this pool":        {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Pool: new("p")})}, "a:own,x b:x"},
		"another pool":     {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Pool: new("q")})}, "a:own b:"},
		"one device":       {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Device: new("b")})}, "a:own b:x"},
		"unknown device":   {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Device: new("c")})}, "a:own b:"},
		"everything fits":  {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Driver: new("d"), Pool: new("p"), Device: new("a")})}, "a:own,x b:"},
		"one does not fit": {[]*resourceapi.DeviceTaintRule{rule("x", &selector{Driver: new("d"), Pool: new("q"), Device: new("a")})}, "a:own b:"},
		"several rules": {[]*resourceapi.DeviceTaintRule{
			rule("x", &selector{Device: new("a")}), rule("y", &selector{}), rule("z", nil),
		}, "a:own,x,y b:y"},
	} {
		slice := &resourceapi.ResourceSlice{Spec: resourceapi.ResourceSliceSpec{
			Driver: "d", Pool: resourceapi.ResourcePool{Name: "p"},
			Devices: []resourceapi.Device{{Name: "a", Taints: []resourceapi.DeviceTaint{{Key: "own"}}}, {Name: "b"}},
		}}
		show := func(s *resourceapi.ResourceSlice) string {
			var devices []string
			for _, d := range s.Spec.Devices {
				var keys []string
				for _, taint := range d.Taints {
					keys = append(keys, taint.Key)
				}
				devices = append(devices, d.Name+":"+strings.Join(keys, ","))
			}
			return strings.Join(devices, " ")
		}
		if got := show(withTaints(slice, test.rules)); got != test.want {
			t.Errorf("%s: the taints are %s, want %s", name, got, test.want)
		}
		if got := show(slice); got != "a:own b:" {
			t.Errorf("%s: the slice itself has the taints %s", name, got)
		}
	}
}

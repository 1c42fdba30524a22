package selinuxwarning

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/csivolume"
)

// use is how a pod uses a volume.
type use struct {
	// label is what the volume is mounted with. Parts that the pod does not have are empty: its
	// node fills them in, but not the level. It is empty if each file gets its label.
	label  v1.SELinuxOptions
	policy v1.PodSELinuxChangePolicy
}

// text returns the label in SELinux's form.
func text(label v1.SELinuxOptions) string {
	if label == (v1.SELinuxOptions{}) {
		return ""
	}
	return strings.Join([]string{label.User, label.Role, label.Type, label.Level}, ":")
}

// differ reports whether two labels differ in their levels, or in another part that both
// have. Nodes have defaults of the other parts alone.
func differ(a, b v1.SELinuxOptions) bool {
	for _, parts := range [][2]string{{a.User, b.User}, {a.Role, b.Role}, {a.Type, b.Type}} {
		if parts[0] != parts[1] && parts[0] != "" && parts[1] != "" {
			return true
		}
	}
	return a.Level != b.Level
}

// conflict is a difference between two pods that use the same volume, as the first one sees it.
type conflict struct {
	property          string // as in messages and metrics
	pod, other        controller.Key
	value, otherValue string
}

// conflicts returns the conflicts of a pod with another one.
func conflicts(pod controller.Key, u use, other controller.Key, o use) (all []conflict) {
	if u.policy != o.policy {
		all = append(all, conflict{"SELinuxChangePolicy", pod, other, string(u.policy), string(o.policy)})
	}
	if differ(u.label, o.label) {
		all = append(all, conflict{"SELinuxLabel", pod, other, text(u.label), text(o.label)})
	}
	return all
}

func (c *conflict) reason() string { return c.property + "Conflict" }

// message returns upstream's message for the pod's event. It does not reveal a pod of another
// namespace.
func (c *conflict) message() string {
	const consequence = "If both pods land on the same node, only one of them may access the volume."
	if c.pod.Namespace != c.other.Namespace {
		return fmt.Sprintf("%s%q conflicts with another pod that uses the same volume as this pod with a different %s. %s", c.property, c.value, c.property, consequence)
	}
	return fmt.Sprintf("%s %q conflicts with pod %s that uses the same volume as this pod with %s %q. %s", c.property, c.value, c.other.Name, c.property, c.otherValue, consequence)
}

// uses has the volumes of pods. Its methods may be called from any goroutine. It implements
// prometheus.Collector with a series for each conflict.
type uses struct {
	mu      sync.Mutex // guards what follows
	volumes map[v1.UniqueVolumeName]map[controller.Key]use
	pods    map[controller.Key][]v1.UniqueVolumeName
}

// clear forgets all pods.
func (u *uses) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.volumes, u.pods = map[v1.UniqueVolumeName]map[controller.Key]use{}, map[controller.Key][]v1.UniqueVolumeName{}
}

// set replaces the volumes of a pod. It returns the conflicts of volumes that are new to it, or
// that it uses in another way, for the pod and for the others.
func (u *uses) set(pod controller.Key, now map[v1.UniqueVolumeName]use) (found []conflict) {
	u.mu.Lock()
	defer u.mu.Unlock()
	before := map[v1.UniqueVolumeName]use{}
	for _, volume := range u.pods[pod] {
		before[volume] = u.volumes[volume][pod]
		delete(u.volumes[volume], pod)
		if len(u.volumes[volume]) == 0 {
			delete(u.volumes, volume)
		}
	}
	delete(u.pods, pod)
	for _, volume := range slices.Sorted(maps.Keys(now)) {
		others := u.volumes[volume]
		if others == nil {
			others = map[controller.Key]use{}
			u.volumes[volume] = others
		}
		if had, ok := before[volume]; !ok || had != now[volume] {
			for _, other := range slices.SortedFunc(maps.Keys(others), byName) {
				found = append(found, conflicts(pod, now[volume], other, others[other])...)
				found = append(found, conflicts(other, others[other], pod, now[volume])...)
			}
		}
		others[pod] = now[volume]
		u.pods[pod] = append(u.pods[pod], volume)
	}
	return found
}

func byName(a, b controller.Key) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// ofDriver returns the pods that use volumes of a CSI driver.
func (u *uses) ofDriver(driver string) (pods []controller.Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for volume, users := range u.volumes {
		if of, _, _ := csivolume.SplitUniqueName(volume); of == driver {
			pods = slices.AppendSeq(pods, maps.Keys(users))
		}
	}
	return pods
}

func description() *prometheus.Desc {
	return prometheus.NewDesc("selinux_warning_controller_selinux_volume_conflict", "[ALPHA] Conflict between two Pods using the same volume",
		[]string{"property", "pod1_namespace", "pod1_name", "pod1_value", "pod2_namespace", "pod2_name", "pod2_value"}, nil)
}

// Describe implements prometheus.Collector.
func (u *uses) Describe(out chan<- *prometheus.Desc) { out <- description() }

// Collect implements prometheus.Collector. Pods that share several volumes have each conflict once.
func (u *uses) Collect(out chan<- prometheus.Metric) {
	all := map[conflict]bool{}
	u.mu.Lock()
	for _, users := range u.volumes {
		for pod, how := range users {
			for other, otherwise := range users {
				for _, c := range conflicts(pod, how, other, otherwise) {
					all[c] = true
				}
			}
		}
	}
	u.mu.Unlock()
	for c := range all {
		out <- prometheus.MustNewConstMetric(description(), prometheus.GaugeValue, 1,
			c.property, c.pod.Namespace, c.pod.Name, c.value, c.other.Namespace, c.other.Name, c.otherValue)
	}
}

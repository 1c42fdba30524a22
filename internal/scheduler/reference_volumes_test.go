package scheduler

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"
)

const exampleDriver = "csi.example.com"

// storage are the volumes of a reference cluster. Claims are bound, or of the
// class "local", whose volumes are made by hand, or of "made", whose volumes
// exampleDriver makes.
type storage struct {
	claims  map[string]*v1.PersistentVolumeClaim // by "namespace/name"
	volumes []*v1.PersistentVolume               // by name
	limits  map[string]int                       // of exampleDriver, by node
}

// drawStorage makes claims c0 to c3 in each namespace, and some free volumes.
func drawStorage(t *rapid.T, nodes []*v1.Node) (s storage, objects []runtime.Object) {
	s = storage{claims: map[string]*v1.PersistentVolumeClaim{}, limits: map[string]int{}}
	size := func() v1.ResourceList {
		return v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(int64(rapid.IntRange(1, 4).Draw(t, "Gi"))<<30, resource.BinarySI)}
	}
	volume := func(name string) *v1.PersistentVolume {
		v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
		v.Spec.Capacity, v.Status.Phase = size(), v1.VolumeAvailable
		v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
		if sometimes(t, "affinity") {
			v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
				MatchExpressions: []v1.NodeSelectorRequirement{{Key: zoneKey, Operator: v1.NodeSelectorOpIn, Values: []string{rapid.SampledFrom([]string{"z1", "z2"}).Draw(t, "volume in")}}},
			}}}}
		}
		s.volumes = append(s.volumes, v)
		return v
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "free volumes") {
		volume(fmt.Sprint("free-", i)).Spec.StorageClassName = rapid.SampledFrom([]string{"local", "made"}).Draw(t, "class")
	}
	for _, ns := range []string{"default", "other"} {
		for i := range 4 {
			c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("c", i)}}
			c.Spec.AccessModes, c.Spec.Resources.Requests = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, size()
			switch kind := rapid.SampledFrom([]string{"bound", "local", "made"}).Draw(t, "claim"); kind {
			case "bound":
				v := volume(fmt.Sprintf("of-%s-%d", ns, i))
				v.Spec.ClaimRef = &v1.ObjectReference{Namespace: ns, Name: c.Name}
				c.Spec.VolumeName, c.Annotations = v.Name, map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
				if sometimes(t, "zone label") {
					v.Labels[zoneKey] = rapid.SampledFrom([]string{"z1", "z1__z2"}).Draw(t, "zones")
				}
				if rapid.Bool().Draw(t, "CSI") {
					v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: exampleDriver, VolumeHandle: fmt.Sprint("h", rapid.IntRange(0, 3).Draw(t, "handle"))}
				}
				if sometimes(t, "one pod") {
					c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
				}
			default:
				c.Spec.StorageClassName = &kind
			}
			s.claims[ns+"/"+c.Name] = c
			objects = append(objects, c)
		}
	}
	for _, n := range nodes {
		if rapid.Bool().Draw(t, "limited") {
			s.limits[n.Name] = rapid.IntRange(0, 2).Draw(t, "limit")
			objects = append(objects, &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: n.Name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
				{Name: exampleDriver, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(s.limits[n.Name]))}},
			}}})
		}
	}
	for name, provisioner := range map[string]string{"local": "kubernetes.io/no-provisioner", "made": exampleDriver} {
		objects = append(objects, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		})
	}
	for _, v := range s.volumes {
		objects = append(objects, v)
	}
	slices.SortFunc(s.volumes, func(a, b *v1.PersistentVolume) int { return strings.Compare(a.Name, b.Name) })
	return s, objects
}

func drawVolumes(t *rapid.T, p *v1.Pod) {
	for i := range rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "claims") {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprint("c", rapid.IntRange(0, 3).Draw(t, "uses"))},
		}})
	}
	if rapid.IntRange(0, 9).Draw(t, "disk") == 0 {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "disk", VolumeSource: v1.VolumeSource{
			GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "disk", ReadOnly: rapid.Bool().Draw(t, "read-only")},
		}})
	}
}

// claimsOf returns the claims of a pod, each once.
func (r *reference) claimsOf(pod *v1.Pod) (claims []*v1.PersistentVolumeClaim) {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		if c := r.storage.claims[pod.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]; !slices.Contains(claims, c) {
			claims = append(claims, c)
		}
	}
	return claims
}

func (r *reference) volumeOf(claim *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	for _, v := range r.storage.volumes {
		if v.Name == claim.Spec.VolumeName {
			return v
		}
	}
	return nil
}

func (r *reference) volumeRestrictions(pod *v1.Pod, node *v1.Node) []string {
	for _, other := range r.on(node) {
		for _, a := range pod.Spec.Volumes {
			for _, b := range other.Spec.Volumes {
				if a.GCEPersistentDisk != nil && b.GCEPersistentDisk != nil && !(a.GCEPersistentDisk.ReadOnly && b.GCEPersistentDisk.ReadOnly) {
					return []string{"node(s) had no available disk"}
				}
			}
		}
	}
	for _, c := range r.claimsOf(pod) {
		used := slices.ContainsFunc(r.pods, func(other *v1.Pod) bool { return slices.Contains(r.claimsOf(other), c) })
		if used && c.Spec.AccessModes[0] == v1.ReadWriteOncePod {
			return []string{"node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"}
		}
	}
	return nil
}

// handles are the volumes of exampleDriver that a pod has or will have.
func (r *reference) handles(pod *v1.Pod) (handles []string) {
	for _, c := range r.claimsOf(pod) {
		switch v := r.volumeOf(c); {
		case v != nil && v.Spec.CSI != nil:
			handles = append(handles, v.Spec.CSI.VolumeHandle)
		case v == nil && *c.Spec.StorageClassName == "made":
			handles = append(handles, c.Namespace+"/"+c.Name)
		}
	}
	return handles
}

func (r *reference) nodeVolumeLimits(pod *v1.Pod, node *v1.Node) []string {
	limit, limited := r.storage.limits[node.Name]
	there := map[string]bool{}
	for _, other := range r.on(node) {
		for _, h := range r.handles(other) {
			there[h] = true
		}
	}
	before := len(there)
	for _, h := range r.handles(pod) {
		there[h] = true
	}
	if limited && len(there) > before && len(there) > limit {
		return []string{"node(s) exceed max volume count"}
	}
	return nil
}

func reaches(node *v1.Node, v *v1.PersistentVolume) bool {
	return v.Spec.NodeAffinity == nil || slices.ContainsFunc(v.Spec.NodeAffinity.Required.NodeSelectorTerms, func(t v1.NodeSelectorTerm) bool { return termSelects(t, node) })
}

// bindings are the volumes that the pod's claims get on a node, the smallest
// claim first. ok is false if one gets none and none can be made.
func (r *reference) bindings(pod *v1.Pod, node *v1.Node) (found map[*v1.PersistentVolumeClaim]*v1.PersistentVolume, ok bool) {
	var open []*v1.PersistentVolumeClaim
	for _, c := range r.claimsOf(pod) {
		if r.volumeOf(c) == nil {
			open = append(open, c)
		}
	}
	request := func(c *v1.PersistentVolumeClaim) int64 {
		return amountOf(c.Spec.Resources.Requests, v1.ResourceStorage)
	}
	slices.SortStableFunc(open, func(a, b *v1.PersistentVolumeClaim) int { return int(request(a)>>30 - request(b)>>30) })
	found = map[*v1.PersistentVolumeClaim]*v1.PersistentVolume{}
	taken := map[*v1.PersistentVolume]bool{}
	for _, c := range open {
		var best *v1.PersistentVolume
		for _, v := range r.storage.volumes {
			size := amountOf(v.Spec.Capacity, v1.ResourceStorage)
			fits := v.Spec.ClaimRef == nil && !taken[v] && v.Spec.StorageClassName == *c.Spec.StorageClassName && size >= request(c) && reaches(node, v)
			if fits && (best == nil || size < amountOf(best.Spec.Capacity, v1.ResourceStorage)) {
				best = v
			}
		}
		if best != nil {
			found[c], taken[best] = best, true
		} else if *c.Spec.StorageClassName == "local" {
			return nil, false
		}
	}
	return found, true
}

func (r *reference) volumeBinding(pod *v1.Pod, node *v1.Node) (reasons []string) {
	if slices.ContainsFunc(r.claimsOf(pod), func(c *v1.PersistentVolumeClaim) bool {
		v := r.volumeOf(c)
		return v != nil && !reaches(node, v)
	}) {
		reasons = append(reasons, "node(s) didn't match PersistentVolume's node affinity")
	}
	if _, ok := r.bindings(pod, node); !ok {
		reasons = append(reasons, "node(s) didn't find available persistent volumes to bind")
	}
	return reasons
}

func (r *reference) volumeZone(pod *v1.Pod, node *v1.Node) []string {
	zone, ok := node.Labels[zoneKey]
	for _, c := range r.claimsOf(pod) {
		if v := r.volumeOf(c); ok && v != nil && (v.Labels[zoneKey] == "z1" && zone != "z1" || v.Labels[zoneKey] == "z1__z2" && zone == "z3") {
			return []string{"node(s) had no available volume zone"}
		}
	}
	return nil
}

// freeStorage is the mean over the classes of the share of the volumes that
// stays free.
func (r *reference) freeStorage(pod *v1.Pod, node *v1.Node) int64 {
	found, _ := r.bindings(pod, node)
	requested, capacity := map[string]int64{}, map[string]int64{}
	for c, v := range found {
		requested[v.Spec.StorageClassName] += amountOf(c.Spec.Resources.Requests, v1.ResourceStorage)
		capacity[v.Spec.StorageClassName] += amountOf(v.Spec.Capacity, v1.ResourceStorage)
	}
	var sum int64
	for class := range capacity {
		sum += 100 - 100*requested[class]/capacity[class]
	}
	if len(capacity) == 0 {
		return 0
	}
	return (2*sum/int64(len(capacity)) + 1) / 2 // rounded
}

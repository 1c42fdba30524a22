package sim

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// claimsQuota is the name of the quota of claims, and claimsAllowed how many it allows.
	claimsQuota   = "claims"
	claimsAllowed = 4
	// recounted is how long the quota may take to count claims again after the last one
	// was created or deleted. It counts them from a cache, which may be late.
	recounted = 2 * time.Minute
)

// storage is what users do with claims, which a quota limits, and with volumes for them.
type storage struct {
	*world
	number int // of what was created last
}

// setUp creates the quota.
func (s *storage) setUp() {
	_, err := s.admin.CoreV1().ResourceQuotas(namespace).Create(s.t.Context(), &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: claimsQuota},
		Spec: v1.ResourceQuotaSpec{Hard: v1.ResourceList{
			v1.ResourcePersistentVolumeClaims: *resource.NewQuantity(claimsAllowed, resource.DecimalSI),
		}},
	}, metav1.CreateOptions{})
	s.check("create a quota", err)
}

// fill lets several users create claims at the same time, one more than the quota allows at
// all, when there are volumes for some of them.
func (s *storage) fill() {
	s.until(convergence, s.uncounted)
	pause(recounted)
	s.createVolumes(s.users.below(claimsAllowed))
	var creating sync.WaitGroup
	refused := make([]error, claimsAllowed+1)
	for i := range refused {
		s.number++
		name := fmt.Sprintf("claim-%d", s.number)
		creating.Go(func() { refused[i] = s.createClaim(name) })
	}
	creating.Wait()
	for _, err := range refused {
		if !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
			s.check("create a claim", err)
		}
	}
}

func (s *storage) createClaim(name string) error {
	_, err := s.admin.CoreV1().PersistentVolumeClaims(namespace).Create(s.t.Context(), &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: new(""),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	return err
}

// createVolumes creates n volumes, each of which any claim may have.
func (s *storage) createVolumes(n int) {
	for range n {
		s.number++
		name := fmt.Sprintf("volume-%d", s.number)
		_, err := s.admin.CoreV1().PersistentVolumes().Create(s.t.Context(), &v1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1.PersistentVolumeSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
				Capacity:               v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")},
				PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/simulated/" + name}},
			},
		}, metav1.CreateOptions{})
		s.check("create a volume", err)
	}
}

// deleteClaim deletes one of the claims, if there is any. Its volume keeps its content, and
// no other claim may have it.
func (s *storage) deleteClaim() {
	all := s.claims()
	if len(all) == 0 {
		return
	}
	err := s.admin.CoreV1().PersistentVolumeClaims(namespace).Delete(s.t.Context(), all[s.users.below(len(all))].Name, metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		s.check("delete a claim", err)
	}
}

// provide creates volumes for all claims that have none.
func (s *storage) provide() {
	without := 0
	for _, c := range s.claims() {
		if c.Spec.VolumeName == "" {
			without++
		}
	}
	s.createVolumes(without)
}

// claims returns the claims, in the order of their names.
func (s *storage) claims() []v1.PersistentVolumeClaim {
	list, err := s.admin.CoreV1().PersistentVolumeClaims(namespace).List(s.t.Context(), metav1.ListOptions{})
	s.check("list claims", err)
	return list.Items
}

// uncounted reports that the quota does not count the claims that there are.
func (s *storage) uncounted() string {
	all := s.claims()
	for _, c := range all {
		if c.DeletionTimestamp != nil {
			return fmt.Sprintf("claim %s is gone", c.Name)
		}
	}
	q, err := s.admin.CoreV1().ResourceQuotas(namespace).Get(s.t.Context(), claimsQuota, metav1.GetOptions{})
	s.check("get a quota", err)
	if used, counts := q.Status.Used[v1.ResourcePersistentVolumeClaims]; !counts || used.Value() != int64(len(all)) {
		return fmt.Sprintf("the quota counts %d claims: %+v", len(all), q.Status)
	}
	return ""
}

// unconverged reports a claim without a volume, or a volume that is kept for a claim that
// has another one.
func (s *storage) unconverged() string {
	if unmet := s.uncounted(); unmet != "" {
		return unmet
	}
	list, err := s.admin.CoreV1().PersistentVolumes().List(s.t.Context(), metav1.ListOptions{})
	s.check("list volumes", err)
	volumes := map[types.UID][]string{} // by the claims that they are for
	for i := range list.Items {
		if v := &list.Items[i]; v.Spec.ClaimRef != nil && v.Status.Phase == v1.VolumeBound {
			volumes[v.Spec.ClaimRef.UID] = append(volumes[v.Spec.ClaimRef.UID], v.Name)
		}
	}
	for _, c := range s.claims() {
		if bound := volumes[c.UID]; c.Status.Phase != v1.ClaimBound || len(bound) != 1 || bound[0] != c.Spec.VolumeName {
			return fmt.Sprintf("claim %s, which is %s, has the volume %q, and these are bound to it: %q", c.Name, c.Status.Phase, c.Spec.VolumeName, bound)
		}
	}
	return ""
}

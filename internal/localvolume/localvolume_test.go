package localvolume

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/defaultclass"
)

// start runs the provisioner of node n in a directory, with the given objects
// and those that every test needs.
func start(t *testing.T, dir string, objects ...runtime.Object) *controllertest.Cluster {
	t.Helper()
	return startOn(t, &limits{size: 100 << 30, off: true}, dir, objects...)
}

// startOn is start with a file system.
func startOn(t *testing.T, fs fileSystem, dir string, objects ...runtime.Object) *controllertest.Cluster {
	t.Helper()
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelHostname: "n.example"}}}
	c := controllertest.New(t, append(objects, node)...)
	c.Run(controller.Descriptor{Name: "local-volumes", New: func(env *controller.Env) (controller.Controller, error) {
		p := New(Config{Client: env.Client, Events: env.Events, NodeName: "n", Dir: dir})
		p.disk.fs = fs
		return p, nil
	}})
	return c
}

func class(change func(c *storage.StorageClass)) *storage.StorageClass {
	c := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: Name, ReclaimPolicy: new(v1.PersistentVolumeReclaimDelete)}
	if change != nil {
		change(c)
	}
	return c
}

func requesting(node string, change func(c *v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data", UID: "1234",
			Annotations: map[string]string{volume.AnnStorageProvisioner: Name, volume.AnnSelectedNode: node},
		},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: new("local"),
			AccessModes:      []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources:        v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

func volumes(c *controllertest.Cluster) map[string]v1.PersistentVolume {
	list, err := c.Fake.CoreV1().PersistentVolumes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	all := map[string]v1.PersistentVolume{}
	for _, v := range list.Items {
		all[v.Name] = v
	}
	return all
}

func names(c *controllertest.Cluster) []string {
	list := []string{}
	for name := range volumes(c) {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for _, e := range found {
		list = append(list, e.Name())
	}
	return list
}

func TestProvision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		elsewhere := requesting("other", func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "elsewhere", "5678" })
		others := requesting("n", func(c *v1.PersistentVolumeClaim) {
			c.Name, c.UID = "others", "9abc"
			c.Annotations[volume.AnnStorageProvisioner] = "example.com/disks"
		})
		c := start(t, dir, class(nil), requesting("n", nil), elsewhere, others)
		controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-1234"})
		v := volumes(c)["pvc-1234"]
		if v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != "1234" || v.Spec.ClaimRef.Name != "data" || v.Spec.ClaimRef.Namespace != "default" {
			t.Errorf("claimRef = %+v", v.Spec.ClaimRef)
		}
		if got := v.Spec.Capacity[v1.ResourceStorage]; got.String() != "1Gi" || v.Spec.StorageClassName != "local" || v.Spec.PersistentVolumeReclaimPolicy != v1.PersistentVolumeReclaimDelete {
			t.Errorf("spec = %+v", v.Spec)
		}
		terms := v.Spec.NodeAffinity.Required.NodeSelectorTerms
		if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || !slices.Equal(terms[0].MatchExpressions[0].Values, []string{"n.example"}) {
			t.Errorf("node affinity = %+v", terms)
		}
		info, err := os.Stat(v.Spec.Local.Path)
		if err != nil || info.Mode() != os.ModeDir|0o777 {
			t.Errorf("directory of the volume: %v, %v", info, err)
		}
		if got := entries(t, dir); !slices.Equal(got, []string{"pvc-1234"}) {
			t.Errorf("directories = %v, want that of the claim of this node alone", got)
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("directory of the volumes: %v, %v; only root may enter it", info, err)
		}
	})
}

// Each part of a request that cannot be fulfilled is named in an event, and
// nothing is made.
func TestUnsupported(t *testing.T) {
	for _, c := range []struct {
		name  string
		claim func(c *v1.PersistentVolumeClaim)
		class func(c *storage.StorageClass)
		want  string
	}{
		{name: "immediate binding", claim: func(c *v1.PersistentVolumeClaim) { delete(c.Annotations, volume.AnnSelectedNode) }, want: "volumeBindingMode: WaitForFirstConsumer"},
		{name: "access mode", claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
		}, want: "access mode ReadWriteMany"},
		{name: "block", claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeMode = new(v1.PersistentVolumeBlock) }, want: "volume mode Block"},
		{name: "selector", claim: func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = &metav1.LabelSelector{} }, want: "selector"},
		{name: "data source", claim: func(c *v1.PersistentVolumeClaim) {
			c.Spec.DataSource = &v1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, want: "data source"},
		{name: "attributes", claim: func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }, want: "attributes"},
		{name: "parameters", class: func(c *storage.StorageClass) { c.Parameters = map[string]string{"path": "/"} }, want: `parameter "path"`},
		{name: "mount options", class: func(c *storage.StorageClass) { c.MountOptions = []string{"noatime"} }, want: "mount options"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "volumes")
				k := start(t, dir, class(c.class), requesting("n", c.claim))
				controllertest.Eventually(t, func() bool {
					return slices.ContainsFunc(k.DrainEvents(), func(e string) bool {
						return strings.HasPrefix(e, `Warning ProvisioningFailed failed to provision volume with StorageClass "local": `) && strings.Contains(e, c.want)
					})
				}, true)
				if got, dirs := names(k), entries(t, dir); len(got) > 0 || len(dirs) > 0 {
					t.Errorf("volumes %v, directories %v; want none", got, dirs)
				}
			})
		})
	}
}

// made returns a volume of the provisioner of node n, and makes its directory
// with a file in it.
func made(t *testing.T, dir string, change func(v *v1.PersistentVolume)) *v1.PersistentVolume {
	t.Helper()
	v := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-1234", UID: "v", Finalizers: []string{finalizer},
			Annotations: map[string]string{volume.AnnDynamicallyProvisioned: Name, nodeAnnotation: "n"},
		},
		Spec: v1.PersistentVolumeSpec{
			ClaimRef:                      &v1.ObjectReference{Namespace: "default", Name: "data", UID: "1234"},
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: filepath.Join(dir, "pvc-1234")}},
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeReleased},
	}
	if change != nil {
		change(v)
	}
	if err := os.MkdirAll(filepath.Join(dir, "pvc-1234", "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pvc-1234", "sub", "file"), []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestReclaim(t *testing.T) {
	deleted := &metav1.Time{Time: metav1.Now().Time}
	for _, c := range []struct {
		name   string
		volume func(v *v1.PersistentVolume)
		kept   bool // the data
		object bool // the volume, with its finalizer
	}{
		{name: "released"},
		{name: "deleted by the user after its claim", volume: func(v *v1.PersistentVolume) { v.DeletionTimestamp = deleted }},
		{name: "released, to be retained", volume: func(v *v1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = v1.PersistentVolumeReclaimRetain
		}, kept: true, object: true},
		{name: "retained, deleted by the user", volume: func(v *v1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy, v.DeletionTimestamp = v1.PersistentVolumeReclaimRetain, deleted
		}, kept: true},
		{name: "bound", volume: func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeBound }, kept: true, object: true},
		{name: "bound, deleted by the user", volume: func(v *v1.PersistentVolume) {
			v.Status.Phase, v.DeletionTimestamp = v1.VolumeBound, deleted
		}, kept: true, object: true},
		{name: "of another node", volume: func(v *v1.PersistentVolume) { v.Annotations[nodeAnnotation] = "other" }, kept: true, object: true},
		{name: "of another provisioner", volume: func(v *v1.PersistentVolume) {
			v.Annotations[volume.AnnDynamicallyProvisioned] = "example.com/disks"
		}, kept: true, object: true},
		{name: "elsewhere", volume: func(v *v1.PersistentVolume) { v.Spec.Local.Path = "/" }, kept: true, object: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "volumes")
				// The volume of a claim shows that the provisioner is at work.
				last := made(t, dir, c.volume)
				k := start(t, dir, class(nil), last, requesting("n", func(c *v1.PersistentVolumeClaim) { c.UID = "last" }))
				controllertest.Eventually(t, func() bool { _, there := volumes(k)["pvc-last"]; return there }, true)
				controllertest.Eventually(t, func() bool {
					v, there := volumes(k)["pvc-1234"]
					return there && slices.Contains(v.Finalizers, finalizer)
				}, c.object)
				if _, err := os.Stat(filepath.Join(dir, "pvc-1234", "sub", "file")); (err == nil) != c.kept {
					t.Errorf("the data: %v; kept should be %t", err, c.kept)
				}
			})
		})
	}
}

// The class is created once: a class that the user deletes does not come back
// with the next start.
func TestDefaultClass(t *testing.T) {
	list := func(c *controllertest.Cluster) map[string]bool {
		all, err := c.Fake.StorageV1().StorageClasses().List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return nil
		}
		defaults := map[string]bool{}
		for _, one := range all.Items {
			defaults[one.Name] = defaultclass.IsStorage(&one)
		}
		return defaults
	}
	dir := filepath.Join(t.TempDir(), "volumes")
	t.Run("first start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, dir)
			controllertest.Eventually(t, func() map[string]bool { return list(c) }, map[string]bool{DefaultClass: true})
			controllertest.Eventually(t, func() bool { _, err := os.Stat(dir); return err == nil }, true)
		})
	})
	t.Run("later start", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, dir, class(nil), requesting("n", nil))
			controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-1234"})
			if got := list(c); len(got) != 1 {
				t.Errorf("classes = %v, want only that of the test", got)
			}
		})
	})
	for _, prefix := range []string{"storageclass", "storageclass.beta"} {
		t.Run("beside a default of "+prefix, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				other := class(func(c *storage.StorageClass) {
					c.Annotations = map[string]string{prefix + ".kubernetes.io/is-default-class": "true"}
				})
				c := start(t, filepath.Join(t.TempDir(), "volumes"), other)
				controllertest.Eventually(t, func() map[string]bool { return list(c) }, map[string]bool{"local": true, DefaultClass: false})
			})
		})
	}
}

// A claim that names this provisioner, although its class has another, gets
// nothing: anybody who may write claims may write annotations.
func TestForeignClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		premium := class(func(c *storage.StorageClass) { c.Name, c.Provisioner = "premium", "example.com/disks" })
		c := start(t, dir, class(nil), premium,
			requesting("n", func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("premium") }),
			requesting("n", func(c *v1.PersistentVolumeClaim) { c.Name, c.UID = "own", "own" }))
		controllertest.Eventually(t, func() []string { return names(c) }, []string{"pvc-own"})
		if got := entries(t, dir); !slices.Equal(got, []string{"pvc-own"}) {
			t.Errorf("directories = %v, want that of the class's own claim alone", got)
		}
	})
}

// A volume of that name that another provisioner made leaves no directory.
func TestVolumeOfAnotherProvisioner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := controllertest.New(t, class(nil), requesting("n", nil),
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelHostname: "n"}}})
		c.Fake.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if err := c.Fake.Tracker().Add(&v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1234"}}); err != nil && !apierrors.IsAlreadyExists(err) {
				return true, nil, err
			}
			return true, nil, apierrors.NewAlreadyExists(v1.Resource("persistentvolumes"), "pvc-1234")
		})
		c.Run(controller.Descriptor{Name: "local-volumes", New: func(env *controller.Env) (controller.Controller, error) {
			return New(Config{Client: env.Client, Events: env.Events, NodeName: "n", Dir: dir}), nil
		}})
		controllertest.Eventually(t, func() bool {
			return slices.ContainsFunc(c.DrainEvents(), func(e string) bool { return strings.Contains(e, "of another provisioner exists") })
		}, true)
		controllertest.Eventually(t, func() []string { return entries(t, dir) }, []string{})
	})
}

// A volume that the API server refuses leaves no directory.
func TestRefusedVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "volumes")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		c := controllertest.New(t, class(nil), requesting("n", nil),
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{v1.LabelHostname: "n"}}})
		c.Fake.PrependReactor("create", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(v1.Resource("persistentvolumes"), "pvc-1234", nil)
		})
		c.Run(controller.Descriptor{Name: "local-volumes", New: func(env *controller.Env) (controller.Controller, error) {
			return New(Config{Client: env.Client, Events: env.Events, NodeName: "n", Dir: dir}), nil
		}})
		controllertest.Eventually(t, func() bool {
			return slices.ContainsFunc(c.DrainEvents(), func(e string) bool {
				return strings.Contains(e, "ProvisioningFailed") && strings.Contains(e, "forbidden")
			})
		}, true)
		controllertest.Eventually(t, func() []string { return entries(t, dir) }, []string{})
	})
}

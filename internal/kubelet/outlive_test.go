package kubelet

import (
	"encoding/pem"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// live returns the id of the running container of that name, "" if none runs.
func (b *bench) live(name string) string {
	list, err := b.runtime.ListContainers(b.t.Context(), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range list {
		if c.GetMetadata().GetName() == name && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return c.GetId()
		}
	}
	return ""
}

// events returns the messages of the events of that reason.
func (b *bench) events(reason string) (messages []string) {
	list, err := b.api.CoreV1().Events("default").List(b.t.Context(), metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Reason == reason {
			messages = append(messages, list.Items[i].Message)
		}
	}
	return messages
}

// record returns a function for the messages of the events with a reason that are
// written from now on. The time of a bench stands still, and of events with one time,
// which have one name, the API server takes the first alone.
func (b *bench) record() func(reason string) []string {
	var mu sync.Mutex
	messages := make(map[string][]string)
	b.api.(*clientfake.Clientset).PrependReactor("create", "events", func(action k8stesting.Action) (bool, runtime.Object, error) {
		event := action.(k8stesting.CreateAction).GetObject().(*v1.Event)
		mu.Lock()
		defer mu.Unlock()
		messages[event.Reason] = append(messages[event.Reason], event.Message)
		return true, event, nil
	})
	return func(reason string) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(messages[reason])
	}
}

// sever makes the API server unreachable until the returned value is false.
func (b *bench) sever() *atomic.Bool {
	away := new(atomic.Bool)
	away.Store(true)
	b.api.(*clientfake.Clientset).PrependReactor("*", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		if away.Load() {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	})
	return away
}

func (b *bench) secret(name string, data map[string][]byte) {
	b.t.Helper()
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", ResourceVersion: "1"}, Data: data}
	if _, err := b.api.CoreV1().Secrets("default").Create(b.t.Context(), s, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// withVolume gives the pod's first container a volume.
func withVolume(source v1.VolumeSource) func(p *v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "v", VolumeSource: source})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: "v", MountPath: "/v"})
	}
}

// A container that ends runs again, whatever became of what its pod's volumes
// were made from, and of the process that made them.
func TestRestartWithoutTheVolumesSources(t *testing.T) {
	const missing = `MountVolume.SetUp failed for volume "v" : `
	for name, test := range map[string]struct {
		source  v1.VolumeSource
		spoil   func(b *bench) error
		message string
		mended  func(b *bench)
	}{
		"secret gone": {
			source: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}},
			spoil: func(b *bench) error {
				return b.api.CoreV1().Secrets("default").Delete(b.t.Context(), "s", metav1.DeleteOptions{})
			},
			message: missing + `secret "s" not found`,
			mended:  func(b *bench) { b.secret("s", map[string][]byte{"k": []byte("new")}) },
		},
		"key gone": {
			source: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Items: []v1.KeyToPath{{Key: "k", Path: "k"}}}},
			spoil: func(b *bench) error {
				s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", ResourceVersion: "2"}}
				_, err := b.api.CoreV1().Secrets("default").Update(b.t.Context(), s, metav1.UpdateOptions{})
				return err
			},
			message: missing + "references non-existent secret key: k",
		},
		"claim gone": {
			source: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}},
			spoil: func(b *bench) error {
				return b.api.CoreV1().PersistentVolumeClaims("default").Delete(b.t.Context(), "c", metav1.DeleteOptions{})
			},
		},
	} {
		for _, again := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				run(t, func(t *testing.T, b *bench) {
					b.secret("s", map[string][]byte{"k": []byte("old")})
					b.claim("c")
					b.create(pod("web", withVolume(test.source)))
					b.after(time.Hour)
					if err := test.spoil(b); err != nil {
						t.Fatal(err)
					}
					if again {
						b.stop()
						b.start()
					}
					b.after(time.Minute)
					if id := b.live("main"); id == "" {
						t.Fatal("the container does not run")
					} else {
						b.runtime.Exit(id, 1)
					}
					b.after(time.Minute)
					if b.live("main") == "" {
						t.Errorf("the container does not run again: %+v", b.get("web").Status.ContainerStatuses)
					}
					if got := b.events("FailedMount"); test.message != "" && !slices.Contains(got, test.message) || test.message == "" && got != nil {
						t.Errorf("the event says %q", got)
					}
					if test.mended == nil {
						return
					}
					test.mended(b)
					b.after(2 * time.Minute) // the longest wait between two attempts
					path := "/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~secret/v/k"
					if raw, err := b.files.ReadFile(path, 10); string(raw) != "new" {
						t.Errorf("the volume has %q (%v) after its secret came back", raw, err)
					}
				})
			})
		}
	}
}

// claim makes a claim bound to a folder of the node.
func (b *bench) claim(name string) {
	b.t.Helper()
	b.claimOf(name, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}})
}

func (b *bench) claimOf(name string, pv *v1.PersistentVolume) {
	b.t.Helper()
	pv.Spec.HostPath, pv.Spec.ClaimRef = &v1.HostPathVolumeSource{Path: "/srv"}, &v1.ObjectReference{Namespace: "default", Name: name}
	if _, err := b.api.CoreV1().PersistentVolumes().Create(b.t.Context(), pv, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	pvc := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	pvc.Spec.VolumeName, pvc.Status.Phase = pv.Name, v1.ClaimBound
	if _, err := b.api.CoreV1().PersistentVolumeClaims("default").Create(b.t.Context(), pvc, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
}

// While the API server is away, containers that end run again, and a sandbox
// that is lost is recreated.
func TestRestartWithoutAPIServer(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		b.claim("c")
		b.secret("s", map[string][]byte{"k": []byte("v")})
		class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "runsc"}
		if _, err := b.api.NodeV1().RuntimeClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(pod("web", withVolume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}), func(p *v1.Pod) {
			p.Spec.RuntimeClassName = &class.Name
			p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}, {Name: "missing"}}
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
		}))
		b.after(time.Hour)
		away := b.sever()
		defer away.Store(false)
		for range 2 {
			id := b.live("main")
			if id == "" {
				t.Fatal("the container does not run")
			}
			b.runtime.Exit(id, 1)
			b.after(time.Minute)
		}
		sandboxes, err := b.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 1 {
			t.Fatal(sandboxes, err)
		}
		if err := b.runtime.StopPodSandbox(t.Context(), sandboxes[0].GetId()); err != nil {
			t.Fatal(err)
		}
		b.after(5 * time.Minute)
		if b.live("main") == "" {
			t.Error("the pod does not run in a new sandbox")
		}
		sandboxes, err = b.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range sandboxes {
			if s.GetRuntimeHandler() != class.Handler {
				t.Errorf("a sandbox is made by %q", s.GetRuntimeHandler())
			}
		}
	})
}

// While the API server is away, a container restarts without the optional
// objects that did not exist before.
func TestRestartWithoutOptionalObjects(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		optional := true
		b.create(pod("web", withVolume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: &optional}}), func(p *v1.Pod) {
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{
				{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: &optional}},
				{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: &optional}},
			}
		}))
		b.after(time.Minute)
		away := b.sever()
		defer away.Store(false)
		b.runtime.Exit(b.live("main"), 1)
		b.after(time.Minute)
		if b.live("main") == "" {
			t.Errorf("the container does not run again: %q", b.events("FailedMount"))
		}
	})
}

// A trust bundle reaches the pods that select it, and so does its successor.
func TestTrustBundleReachesItsPods(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		name, api := "ca", b.api.CertificatesV1().ClusterTrustBundles()
		bundle := func(version, text string) *certificatesv1.ClusterTrustBundle {
			out := &certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
			out.Spec.TrustBundle = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)}))
			return out
		}
		first, second := bundle("1", "first"), bundle("2", "second")
		if _, err := api.Create(t.Context(), first, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		b.create(pod("web", withVolume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &name, Path: "ca.pem"}}},
		}})))
		check := func(want string) {
			t.Helper()
			b.after(time.Second)
			path := "/var/lib/kubelet/pods/uid-web/volumes/kubernetes.io~projected/v/ca.pem"
			if raw, err := b.files.ReadFile(path, 1<<20); string(raw) != want {
				t.Errorf("the volume has %q (%v)", raw, err)
			}
		}
		check(first.Spec.TrustBundle)
		if _, err := api.Update(t.Context(), second, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		check(second.Spec.TrustBundle)
	})
}

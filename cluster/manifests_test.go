package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
)

// Objects that depend on each other, such as a custom resource and its definition,
// may be in any order. A file is applied again when it changes, and its objects
// stay when it is removed. The status has the errors. An error in one file does
// not keep other files from being applied.
func TestManifestsAreApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		put := func(name, content string) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		put("1-boat.yaml", "apiVersion: example.com/v1\nkind: Boat\nmetadata: {name: one, namespace: harbour}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: harbour}\n")
		put("2-definition.yaml", `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  names: {kind: Boat, plural: boats, singular: boat, listKind: BoatList}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
		put("3-settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: red}\n")
		c := clustertest.Start(t, cluster.Options{InProcess: true, ControlPlane: cluster.ControlPlaneOptions{Manifests: []string{dir}}})
		kube, ctx := c.Client(), t.Context()
		await(t, c, "", func() error { return hasBoat(ctx, kube) })
		settings := kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
		color := func(want string) func() error {
			return func() error {
				m, err := settings.Get(ctx, "settings", metav1.GetOptions{})
				if err == nil && m.Data["color"] != want {
					err = errors.New("the color is " + m.Data["color"])
				}
				return err
			}
		}
		await(t, c, "", color("red"))

		put("3-settings.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue}\n")
		put("0-wrong.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wrong}\ndatum: {}\n")
		await(t, c, "0-wrong.yaml: ConfigMap wrong: ", color("blue"))

		if err := errors.Join(os.Remove(filepath.Join(dir, "3-settings.yaml")), os.Remove(filepath.Join(dir, "0-wrong.yaml"))); err != nil {
			t.Fatal(err)
		}
		await(t, c, "", color("blue"))
		// As in k3s, a change in the cluster stays until the file changes.
		if err := settings.Delete(ctx, "settings", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if _, err := settings.Get(ctx, "settings", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the object is there again: %v", err)
		}
		if err := kube.CoreV1().Namespaces().Delete(ctx, "harbour", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await(t, c, "", func() error {
			if _, err := kube.CoreV1().Namespaces().Get(ctx, "harbour", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return errors.Join(err, errors.New("the namespace is there"))
			}
			return nil
		})
	})
}

func hasBoat(ctx context.Context, kube kubernetes.Interface) error {
	return kube.Discovery().RESTClient().Get().AbsPath("/apis/example.com/v1/namespaces/harbour/boats/one").Do(ctx).Error()
}

// await waits until a condition holds and the status says that the manifests are
// applied, or that a text is wrong with them.
func await(t *testing.T, c *cluster.Cluster, wrong string, condition func() error) {
	t.Helper()
	const limit = 10 * time.Minute
	deadline := time.Now().Add(limit)
	for {
		problem := manifestsProblem(c)
		err := condition()
		if err == nil && (wrong == "") == (problem == "") && strings.Contains(problem, wrong) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v: %v; the status says %q, want %q", limit, err, problem, wrong)
		}
		time.Sleep(time.Second)
	}
}

// manifestsProblem returns what the status says is wrong with the manifests.
func manifestsProblem(c *cluster.Cluster) string {
	status, _ := c.Status()
	for _, component := range status.Components {
		for _, condition := range component.Conditions {
			if component.Name == "manifests" && condition.Name == "Manifests" {
				return condition.Message
			}
		}
	}
	return ""
}

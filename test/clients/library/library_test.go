package library

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
)

var team = schema.GroupVersionKind{Group: "library.example.com", Version: "v1", Kind: "Team"}

func teamDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "teams.library.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: team.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "teams", Singular: "team", Kind: team.Kind, ListKind: "TeamList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: team.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
			}},
		},
	}
}

// TestCustomResourceReconciler runs a reconciler that gives each Team a
// namespace, and waits until the cluster's controllers have populated it.
func TestCustomResourceReconciler(t *testing.T) {
	c := clustertest.Start(t, cluster.Options{})
	environment := &envtest.Environment{
		UseExistingCluster: ptr.To(true), Config: c.Config(),
		CRDInstallOptions: envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{teamDefinition()}},
	}
	config, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Error(err)
		}
	})
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // the name is used again with -count
	})
	if err != nil {
		t.Fatal(err)
	}
	each := &unstructured.Unstructured{}
	each.SetGroupVersionKind(team)
	reconcile := func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
		err := manager.GetClient().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: request.Name}})
		return ctrl.Result{}, client.IgnoreAlreadyExists(err)
	}
	if err := ctrl.NewControllerManagedBy(manager).Named("team").For(each).Complete(reconcileFunc(reconcile)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()

	one := each.DeepCopy()
	one.SetName("blue")
	if err := manager.GetClient().Create(ctx, one); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := c.Client().CoreV1().ServiceAccounts("blue").Get(ctx, "default", metav1.GetOptions{})
		return err == nil, client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

type reconcileFunc func(context.Context, ctrl.Request) (ctrl.Result, error)

func (f reconcileFunc) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return f(ctx, request)
}

// TestVirtualTime checks that a Job with ttlSecondsAfterFinished is
// removed after an hour of virtual time.
func TestVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.Start(t, cluster.Options{InProcess: true})
		api, err := client.New(c.Config(), client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "done"},
			Spec: batchv1.JobSpec{
				TTLSecondsAfterFinished: ptr.To[int32](3600),
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "web:1"}},
				}},
			},
		}
		if err := api.Create(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // its pod is created once there is a service account
		if err := finish(t.Context(), api, job); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Minute)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(job), job); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Minute)
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(job), job); !apierrors.IsNotFound(err) {
			t.Errorf("the Job still exists after 61 minutes: %v", err)
		}
	})
}

// finish sets the phase of the Job's pod to Succeeded, as a kubelet would.
func finish(ctx context.Context, api client.Client, job *batchv1.Job) error {
	var pods corev1.PodList
	if err := api.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{batchv1.JobNameLabel: job.Name}); err != nil {
		return err
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("%d pods", len(pods.Items))
	}
	pods.Items[0].Status.Phase = corev1.PodSucceeded
	return api.Status().Update(ctx, &pods.Items[0])
}

// TestInvalidOption checks that errors name the field of Options.
func TestInvalidOption(t *testing.T) {
	_, err := cluster.New(cluster.Options{ServiceCIDR: "10.96.0.0"})
	if field := (*cluster.FieldError)(nil); !errors.As(err, &field) || field.Field != "ServiceCIDR" {
		t.Error(err)
	}
}

// TestMain checks that no test has left files.
func TestMain(m *testing.M) {
	temporary, err := os.MkdirTemp("", "library")
	if err != nil {
		panic(err)
	}
	if err := os.Setenv("TMPDIR", temporary); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.Remove(temporary); err != nil { // fails unless the directory is empty
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

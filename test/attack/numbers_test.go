package attack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// numberedKinds are objects with the largest valid numbers. The controller of
// each sets the field observed.
func numberedKinds() []struct{ path, spec, observed string } {
	const (
		most     = "2147483647"
		longest  = "9223372036854775807"
		pod      = `{"metadata":{"labels":{"app":"n"}},"spec":{"terminationGracePeriodSeconds":` + longest + `,"containers":[{"name":"c","image":"none.invalid/none"}]%s}}`
		selector = `"selector":{"matchLabels":{"app":"n"}}`
	)
	template, never := fmt.Sprintf(pod, ""), fmt.Sprintf(pod, `,"restartPolicy":"Never"`)
	work := `"backoffLimit":` + most + `,"activeDeadlineSeconds":` + longest + `,"ttlSecondsAfterFinished":` + most + `,"template":` + never
	return []struct{ path, spec, observed string }{
		{"apis/apps/v1/%s/statefulsets", `{"serviceName":"n","podManagementPolicy":"Parallel","ordinals":{"start":` + most + `},"minReadySeconds":` + most + `,"replicas":` + most + `,` + selector + `,"template":` + template + `}`, "observedGeneration"},
		{"apis/apps/v1/%s/statefulsets", `{"serviceName":"m","podManagementPolicy":"OrderedReady","replicas":` + most + `,"updateStrategy":{"rollingUpdate":{"partition":` + most + `}},` + selector + `,"template":` + template + `}`, "observedGeneration"},
		{"apis/batch/v1/%s/jobs", `{"parallelism":` + most + `,"completions":` + most + `,` + work + `}`, "startTime"},
		{"apis/batch/v1/%s/jobs", `{"completionMode":"Indexed","parallelism":100000,"completions":` + most + `,"successPolicy":{"rules":[{"succeededIndexes":"0-2147483646"}]},` + work + `}`, "startTime"},
		{"apis/batch/v1/%s/jobs", `{"completionMode":"Indexed","parallelism":10000,"completions":` + most + `,"backoffLimitPerIndex":` + most + `,"maxFailedIndexes":10000,` + work + `}`, "startTime"},
		{"apis/apps/v1/%s/deployments", `{"replicas":` + most + `,"progressDeadlineSeconds":` + most + `,"strategy":{"rollingUpdate":{"maxSurge":` + most + `,"maxUnavailable":"100%"}},` + selector + `,"template":` + template + `}`, "observedGeneration"},
		{"apis/apps/v1/%s/replicasets", `{"replicas":` + most + `,` + selector + `,"template":` + template + `}`, "observedGeneration"},
		{"api/v1/%s/replicationcontrollers", `{"replicas":` + most + `,"selector":{"app":"n"},"template":` + template + `}`, "observedGeneration"},
		{"apis/batch/v1/%s/cronjobs", `{"schedule":"* * * * *","startingDeadlineSeconds":` + longest + `,"successfulJobsHistoryLimit":` + most + `,"jobTemplate":{"spec":{"parallelism":` + most + `,` + work + `}}}`, ""},
		{"apis/policy/v1/%s/poddisruptionbudgets", `{"minAvailable":` + most + `,` + selector + `}`, "observedGeneration"},
		{"apis/autoscaling/v2/%s/horizontalpodautoscalers", `{"minReplicas":` + most + `,"maxReplicas":` + most + `,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"n"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":` + most + `}}}]}`, ""},
	}
}

// maxMemoryGrowth bounds the growth of the heap by objects with the largest
// numbers.
const maxMemoryGrowth = 200 << 20

// TestTenantWritesHugeNumbers checks that a controller's work does not grow
// with a number in an object. A StatefulSet with two billion replicas used to
// crash the control plane, again after each restart.
func TestTenantWritesHugeNumbers(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	tenant, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().ResourceQuotas(namespace).Create(t.Context(), &v1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec:       v1.ResourceQuotaSpec{Hard: v1.ResourceList{v1.ResourcePods: resource.MustParse("5")}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quota is in effect", func() error {
		quota, err := c.client.CoreV1().ResourceQuotas(namespace).Get(t.Context(), "pods", metav1.GetOptions{})
		if err == nil && quota.Status.Hard.Pods().Value() != 5 {
			err = fmt.Errorf("its status is %v", quota.Status)
		}
		return err
	})
	before, largest := c.memory(t), largestHeap(t, c)
	bounded := func() {
		if now := largestHeap(t, c); now > largest+maxMemoryGrowth {
			t.Errorf("the largest heap of the control plane had %d MB before the numbers, %d MB with them", largest>>20, now>>20)
		}
	}
	c.checkLatencyDuring(t, func(ctx context.Context) {
		for i, kind := range numberedKinds() {
			path := "/" + fmt.Sprintf(kind.path, "namespaces/"+namespace)
			name := fmt.Sprintf("n%d", i)
			body := fmt.Sprintf(`{"metadata":{"name":%q},"spec":%s}`, name, kind.spec)
			if code, answer := send(t, config, http.MethodPost, path, body); code != http.StatusCreated {
				t.Errorf("POST %s: %d %s", path, code, answer)
				continue
			}
			if kind.observed == "" {
				continue
			}
			eventually(t, path+" is reconciled", func() error {
				bounded()
				raw, err := tenant.RESTClient().Get().AbsPath(path, name).DoRaw(ctx)
				if err != nil {
					return err
				}
				var object struct{ Status map[string]any }
				if err := json.Unmarshal(raw, &object); err != nil {
					return err
				}
				if object.Status[kind.observed] == nil {
					return fmt.Errorf("its status is %v", object.Status)
				}
				return nil
			})
		}
		for i, kind := range numberedKinds() {
			path := "/" + fmt.Sprintf(kind.path, "namespaces/"+namespace) + fmt.Sprintf("/n%d?propagationPolicy=Background&gracePeriodSeconds=0", i)
			if code, answer := send(t, config, http.MethodDelete, path, ""); code != http.StatusOK {
				t.Errorf("DELETE %s: %d %s", path, code, answer)
			}
		}
		eventually(t, "all objects are deleted", func() error {
			bounded()
			for i, kind := range numberedKinds() {
				path := "/" + fmt.Sprintf(kind.path, "namespaces/"+namespace) + fmt.Sprintf("/n%d", i)
				if _, err := tenant.RESTClient().Get().AbsPath(path).DoRaw(ctx); err == nil {
					return fmt.Errorf("%s still exists", path)
				}
			}
			pods, err := tenant.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("%d pods still exist", len(pods.Items))
			}
			return err
		})
	})
	c.recordMemory(t, before)
}

// TestTenantWritesHugeQuantities checks that quantities that take hours to
// compute with are refused, in fields and in the names of resources.
func TestTenantWritesHugeQuantities(t *testing.T) {
	c := controlPlane(t)
	config, namespace := c.tenant(t, "admin")
	const (
		pod   = `{"containers":[{"name":"c","image":"none.invalid/none","resources":{"limits":{"cpu":"1",%s}}}]}`
		claim = `{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%q}}}`
		scale = `{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"n"},"metrics":[{"type":"Resource","resource":{"name":"cpu","target":{"type":"AverageValue","averageValue":%q}}}]}`
	)
	c.checkLatencyDuring(t, func(context.Context) {
		for _, huge := range []string{"1e900000000", "1e-900000000", strings.Repeat("9", 1<<20)} {
			for path, spec := range map[string]string{
				"api/v1/namespaces/%s/pods":                                   fmt.Sprintf(pod, fmt.Sprintf(`"memory":%q`, huge)),
				"api/v1/namespaces/%s/persistentvolumeclaims":                 fmt.Sprintf(claim, huge),
				"apis/autoscaling/v2/namespaces/%s/horizontalpodautoscalers":  fmt.Sprintf(scale, huge),
				"api/v1/namespaces/%s/pods?dryRun=All&fieldValidation=Ignore": fmt.Sprintf(pod, fmt.Sprintf(`"memory":%q`, huge)),
			} {
				path = "/" + fmt.Sprintf(path, namespace)
				if code, answer := send(t, config, http.MethodPost, path, `{"metadata":{"name":"huge"},"spec":`+spec+`}`); code != http.StatusBadRequest || !strings.Contains(answer, "out of range") {
					t.Errorf("POST %s: %d %.500s", path, code, answer)
				}
			}
		}
		for _, size := range []string{"1e900000000", "1e-900000000", "1e19"} {
			path := "/api/v1/namespaces/" + namespace + "/pods"
			body := `{"metadata":{"name":"huge"},"spec":` + fmt.Sprintf(pod, fmt.Sprintf(`"hugepages-%s":"1"`, size)) + `}`
			if code, answer := send(t, config, http.MethodPost, path, body); code != http.StatusUnprocessableEntity {
				t.Errorf("hugepages-%s: %d %.500s", size, code, answer)
			}
		}
	})
}

package ingress

import (
	"context"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/supervise"
)

// classAnnotation is the annotation that the field ingressClassName replaced.
const classAnnotation = "kubernetes.io/ingress.class"

// keepClass creates the IngressClass DefaultClass, and tries again until it is there or
// ctx ends. Ingresses of other classes of this controller are served meanwhile.
func (c *Controller) keepClass(ctx context.Context) {
	for delay := time.Second; ; delay = min(2*delay, time.Minute) {
		err := c.createClass(ctx)
		supervise.Report(ctx, "IngressClass", err)
		if err == nil {
			return
		}
		klog.FromContext(ctx).Error(err, "Creating the IngressClass failed, will try again", "class", DefaultClass, "in", delay)
		if !supervise.Pause(ctx, delay) {
			return
		}
	}
}

// createClass creates the IngressClass DefaultClass if it is missing. It is the default
// unless the cluster has another default.
func (c *Controller) createClass(ctx context.Context) error {
	classes := c.Client.Kubernetes.NetworkingV1().IngressClasses()
	list, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if slices.ContainsFunc(list.Items, func(c networkingv1.IngressClass) bool { return c.Name == DefaultClass }) {
		return nil
	}
	class := &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultClass},
		Spec:       networkingv1.IngressClassSpec{Controller: ControllerName},
	}
	if !slices.ContainsFunc(list.Items, func(c networkingv1.IngressClass) bool { return defaultclass.IsIngress(&c) }) {
		class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	}
	_, err = classes.Create(ctx, class, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// own returns the Ingresses of the classes of this controller. One without a class is
// among them if the default class is: it may be older than the class.
func (c *Controller) own() []*networkingv1.Ingress {
	classes := allOf[*networkingv1.IngressClass](c.classes)
	controllers := map[string]string{}
	for _, class := range classes {
		controllers[class.Name] = class.Spec.Controller
	}
	unnamed := false
	if class := defaultclass.Ingress(slices.Values(classes)); class != nil {
		unnamed = class.Spec.Controller == ControllerName
	}
	return slices.DeleteFunc(allOf[*networkingv1.Ingress](c.ingresses), func(i *networkingv1.Ingress) bool {
		name, named := i.Annotations[classAnnotation]
		if i.Spec.IngressClassName != nil {
			name, named = *i.Spec.IngressClassName, true
		}
		if !named {
			return !unnamed
		}
		return controllers[name] != ControllerName
	})
}

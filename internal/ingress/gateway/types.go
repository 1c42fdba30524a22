package gateway

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Group is the API group of the Gateway API.
const Group = "gateway.networking.k8s.io"

// Kinds of the Gateway API.
const (
	KindGateway = "Gateway"
	KindHTTP    = "HTTPRoute"
	KindGRPC    = "GRPCRoute"
)

// The types below have what is used of the objects of the standard channel, versions v1,
// and v1beta1 of ReferenceGrant (gateway-api.sigs.k8s.io/reference/spec). Defaults of the
// definitions are not relied upon.

// Class is a GatewayClass.
type Class struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ControllerName string `json:"controllerName"`
	} `json:"spec"`
	Status ClassStatus `json:"status"`
}

// ClassStatus is the status of a GatewayClass.
type ClassStatus struct {
	Conditions        []metav1.Condition `json:"conditions,omitempty"`
	SupportedFeatures []Feature          `json:"supportedFeatures,omitempty"`
}

// Feature is the name of a feature of the specification.
type Feature struct {
	Name string `json:"name"`
}

// Gateway is a Gateway.
type Gateway struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		GatewayClassName string          `json:"gatewayClassName"`
		Listeners        []Listener      `json:"listeners"`
		Addresses        []Address       `json:"addresses"`
		TLS              json.RawMessage `json:"tls"`
	} `json:"spec"`
	Status GatewayStatus `json:"status"`
}

// Address is an address of a Gateway.
type Address struct {
	Type  *string `json:"type,omitempty"`
	Value string  `json:"value,omitempty"`
}

// Listener is a listener of a Gateway.
type Listener struct {
	Name     string  `json:"name"`
	Hostname *string `json:"hostname"`
	Port     int     `json:"port"`
	Protocol string  `json:"protocol"`
	TLS      *struct {
		Mode               *string           `json:"mode"`
		CertificateRefs    []Reference       `json:"certificateRefs"`
		FrontendValidation json.RawMessage   `json:"frontendValidation"`
		Options            map[string]string `json:"options"`
	} `json:"tls"`
	AllowedRoutes *struct {
		Namespaces *struct {
			From     *string               `json:"from"`
			Selector *metav1.LabelSelector `json:"selector"`
		} `json:"namespaces"`
		Kinds []GroupKind `json:"kinds"`
	} `json:"allowedRoutes"`
}

// Reference refers to an object.
type Reference struct {
	Group     *string `json:"group,omitempty"`
	Kind      *string `json:"kind,omitempty"`
	Namespace *string `json:"namespace,omitempty"`
	Name      string  `json:"name"`
}

// GroupKind is a kind of routes.
type GroupKind struct {
	Group *string `json:"group,omitempty"`
	Kind  string  `json:"kind"`
}

// GatewayStatus is the status of a Gateway.
type GatewayStatus struct {
	Addresses  []Address          `json:"addresses"`
	Conditions []metav1.Condition `json:"conditions"`
	Listeners  []ListenerStatus   `json:"listeners"`
}

// ListenerStatus is the status of a listener.
type ListenerStatus struct {
	Name           string             `json:"name"`
	SupportedKinds []GroupKind        `json:"supportedKinds"`
	AttachedRoutes int32              `json:"attachedRoutes"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// Route is an HTTPRoute or a GRPCRoute.
type Route struct {
	metav1.ObjectMeta `json:"metadata"`

	// Kind is set by who decodes the object.
	Kind string `json:"-"`
	Spec struct {
		ParentRefs []ParentRef `json:"parentRefs"`
		Hostnames  []string    `json:"hostnames"`
		Rules      []Rule      `json:"rules"`
	} `json:"spec"`
	Status RouteStatus `json:"status"`
}

// Services calls visit for each Service to which a route refers.
func (r *Route) Services(visit func(namespace, name string)) {
	for i := range r.Spec.Rules {
		for _, ref := range r.Spec.Rules[i].BackendRefs {
			if ptr.Deref(ref.Kind, "Service") == "Service" {
				visit(ptr.Deref(ref.Namespace, r.Namespace), ref.Name)
			}
		}
	}
}

// ParentRef refers to a Gateway, or to one of its listeners.
type ParentRef struct {
	Reference

	SectionName *string `json:"sectionName,omitempty"`
	Port        *int    `json:"port,omitempty"`
}

// RouteStatus is the status of a route.
type RouteStatus struct {
	Parents []ParentStatus `json:"parents"`
}

// ParentStatus is the status of a route at a parent.
type ParentStatus struct {
	ParentRef      ParentRef          `json:"parentRef"`
	ControllerName string             `json:"controllerName"`
	Conditions     []metav1.Condition `json:"conditions"`
}

// Rule is a rule of a route.
type Rule struct {
	Matches     []Match      `json:"matches"`
	Filters     []Filter     `json:"filters"`
	BackendRefs []BackendRef `json:"backendRefs"`
	Timeouts    *struct {
		Request        *string `json:"request"`
		BackendRequest *string `json:"backendRequest"`
	} `json:"timeouts"`
}

// Match is a match of a rule.
type Match struct {
	Path *struct {
		Type  *string `json:"type"`
		Value *string `json:"value"`
	} `json:"path"`
	Headers     []ValueMatch `json:"headers"`
	QueryParams []ValueMatch `json:"queryParams"`
	Method      *MethodMatch `json:"method"`
}

// ValueMatch compares a header or a parameter.
type ValueMatch struct {
	Type  *string `json:"type"`
	Name  string  `json:"name"`
	Value string  `json:"value"`
}

// MethodMatch is the method of a match: a text in an HTTPRoute, an object in a GRPCRoute.
type MethodMatch struct {
	HTTP          string
	Type          *string
	Service, Name string // of gRPC
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *MethodMatch) UnmarshalJSON(data []byte) error {
	if bytes.HasPrefix(data, []byte{'"'}) {
		return json.Unmarshal(data, &m.HTTP)
	}
	var of struct {
		Type    *string `json:"type"`
		Service string  `json:"service"`
		Method  string  `json:"method"`
	}
	if err := json.Unmarshal(data, &of); err != nil {
		return err
	}
	m.Type, m.Service, m.Name = of.Type, of.Service, of.Method
	return nil
}

// Filter is a filter of a rule.
type Filter struct {
	Type                   string          `json:"type"`
	RequestHeaderModifier  *HeaderModifier `json:"requestHeaderModifier"`
	ResponseHeaderModifier *HeaderModifier `json:"responseHeaderModifier"`
	RequestRedirect        *struct {
		Scheme     *string       `json:"scheme"`
		Hostname   *string       `json:"hostname"`
		Path       *PathModifier `json:"path"`
		Port       *int          `json:"port"`
		StatusCode *int          `json:"statusCode"`
	} `json:"requestRedirect"`
	URLRewrite *struct {
		Hostname *string       `json:"hostname"`
		Path     *PathModifier `json:"path"`
	} `json:"urlRewrite"`
}

// HeaderModifier changes headers.
type HeaderModifier struct {
	Set    []Header `json:"set"`
	Add    []Header `json:"add"`
	Remove []string `json:"remove"`
}

// Header is a header with a value.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// PathModifier changes a path.
type PathModifier struct {
	Type               string  `json:"type"`
	ReplaceFullPath    *string `json:"replaceFullPath"`
	ReplacePrefixMatch *string `json:"replacePrefixMatch"`
}

// BackendRef refers to a backend.
type BackendRef struct {
	Reference

	Port    *int32            `json:"port"`
	Weight  *int32            `json:"weight"`
	Filters []json.RawMessage `json:"filters"`
}

// Grant is a ReferenceGrant.
type Grant struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		From []struct {
			Group     string `json:"group"`
			Kind      string `json:"kind"`
			Namespace string `json:"namespace"`
		} `json:"from"`
		To []struct {
			Group string  `json:"group"`
			Kind  string  `json:"kind"`
			Name  *string `json:"name"`
		} `json:"to"`
	} `json:"spec"`
}

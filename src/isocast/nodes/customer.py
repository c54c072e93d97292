"""A customer, R (§4.1): two or more lines, one sequence."""

from __future__ import annotations

from isocast.hierarchy.customer import Customer, CustomerSnapshot
from isocast.hierarchy.customer_settings import CustomerSettings, CustomerState, Grade, JoinPoint

__all__ = ["Customer", "CustomerSettings", "CustomerSnapshot", "CustomerState", "Grade", "JoinPoint"]

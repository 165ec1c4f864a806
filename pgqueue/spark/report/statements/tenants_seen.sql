-- How many tenants there are, and in how many hours jobs ended.
select count(distinct tenant) as tenants, count(distinct hour) as hours
from tenants

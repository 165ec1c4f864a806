-- How many days each day's jobs reach back: the days before it in which they ran.
select day, cast(unix_date(day) - floor(min(unix_micros(hour)) / 86400000000) as int) as reaches
from {busy}
group by day
